"""A CPU with two sockets: one process whose memory lies on one of them, and a process for each with its own."""

from .svg import figure

SOCKETS, CORES = 2, 4
BUSY, MEMORY = "Cores at work", "Weights in memory"
WAYS = {
    "One process: the weights lie where the first thread touched them": (0,),
    "One process for each node, by numactl": (0, 1),
}


def read(way):
    """{(socket that computes, node that its weights lie on)}"""
    nodes = WAYS[way]
    return {(socket, socket if socket in nodes else nodes[0]) for socket in range(SOCKETS)}


def diagram():
    def draw(drawing):
        gap = 40 if drawing.narrow else 90
        width = (drawing.width - 2 - gap) / SOCKETS
        for number, way in enumerate(WAYS):
            top = number * 178
            for at, line in enumerate([way] if not drawing.narrow else way.replace(": ", ":|").replace(", ", ",|").split("|")):
                drawing.text(1, top + 8 + 15 * at, line, "start" if not at else "start quiet")
            head = top + 38
            for socket in range(SOCKETS):
                left = 1 + socket * (width + gap)
                step = (width - 12) / CORES
                drawing.box(left, head, width, 46, "", "box")
                for core in range(CORES):
                    drawing.box(left + 6 + core * step + 1, head + 5, step - 2, 18, "", BUSY)
                drawing.text(left + width / 2, head + 34, f"socket {socket}", "middle quiet")
                holds = socket in WAYS[way]
                drawing.box(left, head + 84, width, 34, "weights" if holds else "", MEMORY if holds else "lane")
            for socket, node in sorted(read(way)):
                start, end = (1 + place * (width + gap) + width / 2 for place in (node, socket))
                if socket == node:
                    drawing.arrow((start, head + 84), (start, head + 48))
                else:
                    corner = start + width / 2
                    drawing.arrow((corner, head + 101), (corner + gap / 2, head + 101), (corner + gap / 2, head + 66), (end, head + 66), (end, head + 48))
                    drawing.text(end - 6, head + 76, "over the link", "end quiet")

    rows = "".join(
        f"<tr><th>{way}</th><td>{'; '.join(f'socket {socket} reads node {node}' for socket, node in sorted(read(way)))}</td></tr>" for way in WAYS
    )
    return figure(
        "Two sockets: what each reads for every token",
        "Two drawings of two sockets, each with its memory. In the first, one process runs on all cores, and its weights lie in the memory of the first socket, so the second "
        "reads them over the link. In the second each socket has a process with its own weights.",
        draw,
        f'<div class="scroll"><table aria-label="Sockets"><tbody>{rows}</tbody></table></div>',
        (BUSY, MEMORY),
    )
