// Tables in a `.sortable` box: a click on a heading sorts by its column, a second click the other way round.
{
  // Each unit in one measure: bytes in GiB, times in seconds.
  const BYTES = { B: 2 ** -30, KiB: 2 ** -20, MiB: 2 ** -10, GiB: 1, TiB: 2 ** 10, MB: 1e6 / 2 ** 30, GB: 1e9 / 2 ** 30, TB: 1e12 / 2 ** 30 }
  const SECONDS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, minutes: 60, h: 3600, hours: 3600 }
  const AMOUNT = /(-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)\s*([a-zµ]+\b|%)?/i
  const shown = cell => [...cell.querySelectorAll(".claim")].find(claim => claim.checkVisibility())

  // [what is measured, how much]. In a column of figures, a number beside them, as a batch or a model's size, is none.
  const value = (cell, ofFigures) => {
    const [, digits, unit] = (ofFigures ? shown(cell) : cell)?.innerText.match(AMOUNT) ?? []
    if (!digits) return ["", NaN]
    const text = cell.innerText, amount = parseFloat(digits.replaceAll(",", ""))
    if (unit in BYTES) return ["bytes", amount * BYTES[unit]]
    if (unit in SECONDS) return ["time", amount * SECONDS[unit]]
    const isLess = /\b(less|lower|fewer|smaller)\b/.test(text)
    if (unit === "x") return ["ratio", isLess || /the time\b|\bslower\b/.test(text) ? 1 / amount : amount] // half the time is twice the speed
    return [unit ?? "", isLess ? -amount : amount]
  }
  const sort = (table, column, direction) => {
    const rows = [...table.tBodies[0].rows], ofFigures = rows.some(row => shown(row.cells[column]))
    const values = new Map(rows.map(row => [row, value(row.cells[column], ofFigures)]))
    const often = name => rows.filter(row => values.get(row)[0] === name).length
    table.tBodies[0].append(...rows.sort((a, b) => {
      const [[what, x], [other, y]] = [values.get(a), values.get(b)]
      if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1 // what is no number comes last, in both directions
      if (isNaN(x)) return direction * a.cells[column].innerText.localeCompare(b.cells[column].innerText)
      return what === other ? direction * (x - y) : often(other) - often(what) || what.localeCompare(other) // never % among GiB
    }))
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
