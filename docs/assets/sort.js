// Tables in a `.sortable` box: a click on a heading sorts by its column, a second click the other way round.
{
  const number = text => parseFloat(text.replace(/,/g, "").match(/-?\d+(\.\d+)?(e-?\d+)?/)?.[0] ?? "NaN")
  const ratio = /the (time|speed)/ // half the time is twice the speed: such a column sorts by the speed
  const speed = text => ({ time: 1 / number(text), speed: number(text) })[text.match(ratio)?.[1]] ?? NaN
  const compare = (a, b, value, direction) => {
    const [x, y] = [value(a), value(b)]
    if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1 // "not measured yet" comes last, in both directions
    return direction * (isNaN(x) ? a.localeCompare(b) : x - y)
  }
  const sort = (table, column, direction) => {
    const text = row => row.cells[column].innerText.trim() // what the machine chosen shows
    const rows = [...table.tBodies[0].rows]
    const value = rows.some(row => ratio.test(text(row))) ? speed : number
    table.tBodies[0].append(...rows.sort((a, b) => compare(text(a), text(b), value, direction)))
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
