// Tables in a `.sortable` box: a click on a heading sorts by its column, a second click the other way round.
{
  const number = text => parseFloat(text.replace(/,/g, "").match(/-?\d+(\.\d+)?(e-?\d+)?/)?.[0] ?? "NaN")
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)]
    if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1 // "not measured yet" comes last
    return isNaN(x) ? a.localeCompare(b) : x - y
  }
  const sort = (table, column, direction) => {
    const text = row => row.cells[column].textContent.trim()
    const rows = [...table.tBodies[0].rows].sort((a, b) => direction * compare(text(a), text(b)))
    table.tBodies[0].append(...rows)
  }
  addEventListener("DOMContentLoaded", () => document.querySelectorAll(".sortable table").forEach(table => {
    const headings = [...table.tHead.rows[0].cells]
    headings.forEach((heading, column) => {
      const button = document.createElement("button")
      button.append(...heading.childNodes)
      heading.append(button)
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending"
        headings.forEach(other => other.removeAttribute("aria-sort"))
        heading.setAttribute("aria-sort", down ? "descending" : "ascending")
        sort(table, column, down ? -1 : 1)
      })
    })
  }))
}
