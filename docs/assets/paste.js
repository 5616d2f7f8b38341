// The paste box of Debugging: finds the errors in a log, asks the search for each, and shows what the section says to do first.
// Nothing of the log leaves the page.
{
  const form = document.getElementById("paste"), box = form.elements.log, answer = document.getElementById("paste-found")
  const search = document.forms.search
  const root = new URL(`${JSON.parse(document.getElementById("__config").textContent).base.replace(/\/$/, "")}/`, location)
  const MOST = 3 // errors shown
  const READ = 500_000 // letters of a log, from its end
  const WIDE = 1000 // letters of a line
  const BELOW = 2 // lines of an error that follow its first
  const PARTS = 3 // paragraphs shown of a section

  // How the line of an error begins in Python, or what C++, the shell and the kernel say instead.
  const RANK = /^\s*(?:\[rank ?\d+\]:\s?|\[\d+\]:\s?|\(\w+ pid=\d+\)\s?)/
  const RAISED = /^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Failure)\b(?::|$)/
  const SAID = /\b(?:error|assertion .*failed|fatal|failed|killed|aborted|segmentation fault|out of memory|timed? ?out|SIG[A-Z]{3,})\b/i
  const WARNED = /\w*Warning: /
  const SAYS_NOTHING = /ChildFailedError|CalledProcessError|^\s*(?:Traceback|During handling|The above exception)/ // what failed stands elsewhere
  const FRAME = /^\s*File "/, CODE = /^\s{4,}\S/ // of a traceback: code stands below its frame
  const NOISE = /%\|.*[|\]]|^\s*\{'\w+': |^\[?\d{4}-\d\d-\d\d/ // bars of progress, losses, lines with a date

  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties)
    element.append(...children)
    return element
  }

  // The different errors of a log, the first first: the others often follow from it.
  const errors = log => {
    const all = log.slice(-READ).split("\n").map(line => line.slice(0, WIDE).replace(RANK, "")).filter(line => line.trim())
    let framed = false
    const lines = all.map(line => { // "" for what says nothing of an error, and ends one
      framed = FRAME.test(line) || framed && CODE.test(line)
      return framed || NOISE.test(line) ? "" : line
    })
    const telling = lines.filter(Boolean)
    if (all.length <= BELOW + 1 || !telling.length) return [(telling.length ? telling : all).slice(-BELOW - 1).join(" ")]
    const starts = pattern => lines.flatMap((line, number) => pattern.test(line) && !SAYS_NOTHING.test(line) ? [number] : [])
    const whole = number => { // with what belongs to it in the lines below
      const below = lines.slice(number + 1, number + 1 + BELOW)
      const end = below.findIndex(line => !line || [RAISED, WARNED, SAYS_NOTHING].some(pattern => pattern.test(line)))
      return [lines[number], ...(end < 0 ? below : below.slice(0, end))].join(" ")
    }
    const found = [RAISED, SAID].map(starts).find(some => some.length)?.map(whole) ?? [telling.filter(line => !WARNED.test(line)).slice(-BELOW - 1).join(" ")]
    const texts = found.filter(Boolean).length ? found : starts(WARNED).map(whole)
    const alike = text => text.replace(/\d+/g, "0").slice(0, 80)
    return texts.filter((text, number) => texts.findIndex(other => alike(other) === alike(text)) === number).slice(0, MOST)
  }

  const sections = async text => {
    const script = search.load() // by assets/shell.js; assets/find.js then answers
    if (!search.ask) await new Promise((resolve, reject) => { script.addEventListener("load", resolve); script.addEventListener("error", () => reject(Error("the search"))) })
    return search.ask(text.slice(0, 2000))
  }

  // What a section says after this message, or first where it shows another one, up to its first program.
  const advice = async (location, text) => {
    const parts = (await search.parts(location)).map(part => document.importNode(part, true))
    const begin = part => part.textContent.replace(/\d+/g, "0").replace(/\s+/g, " ").trim().slice(0, 40)
    const blocks = parts.filter(part => part.matches(".language-text"))
    const own = blocks.findIndex(part => begin({ textContent: text.slice(text.indexOf(part.textContent.trim().slice(0, 10))) }) === begin(part))
    const message = own > 0 ? parts.indexOf(blocks[own]) : -1 // what stands before the first message is said of it
    const shown = []
    for (const part of parts.slice(message + 1)) {
      if (shown.length === PARTS) break
      if (!part.matches("p, ul, ol, div:has(> table), .highlight:not(.language-text)")) continue
      part.querySelectorAll("button.claim").forEach(button => button.replaceWith(button.textContent))
      part.querySelectorAll("button").forEach(button => button.remove())
      part.querySelectorAll("[id]").forEach(inner => inner.removeAttribute("id"))
      part.querySelectorAll("a[href]").forEach(link => { link.href = new URL(link.getAttribute("href"), new URL(location, root)) })
      shown.push(part)
      if (part.matches(".highlight")) break
    }
    if (shown.at(-1)?.textContent.trim().endsWith(":")) shown.pop() // what it announces is not shown
    return shown
  }

  const entry = async text => {
    const [best, ...others] = await sections(text)
    if (!best) return make("section", {}, make("p", {}, make("code", { textContent: text.slice(0, 160) })), make("p", { textContent: "No section has these words." }))
    const link = section => make("a", { href: new URL(section.location, root), textContent: section.page === section.title ? section.title : `${section.page}: ${section.title}` })
    const more = others.slice(0, 2).flatMap(section => [" · ", link(section)])
    return make("section", {},
      make("p", { className: "paste-said" }, make("code", { textContent: text.slice(0, 160) })),
      make("p", { className: "paste-title" }, link(best)), ...await advice(best.location, text),
      ...(more.length ? [make("p", { className: "paste-more" }, "If that is not it: ", ...more.slice(1))] : []))
  }

  let asked = 0, waiting
  const look = async () => {
    const mine = ++asked, log = box.value
    let parts = []
    try {
      if (log.trim()) parts = await Promise.all(errors(log).map(entry))
    } catch (error) {
      parts = [make("p", { textContent: `It could not be looked up: ${error.message}. Load the page again.` })]
    }
    if (mine === asked) answer.replaceChildren(...parts)
  }
  form.addEventListener("submit", event => event.preventDefault())
  box.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, 200) })
  if (box.value) look() // what the browser kept
}
