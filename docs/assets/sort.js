// Tables in a `.sortable` box: a click on a heading sorts by its column, a second click the other way round.
import { compared, value } from "./sort/values.mjs"

/** @param {HTMLTableCellElement} cell The figure of the machine that is chosen. */
const shown = cell => [...cell.querySelectorAll(".claim")].find(claim => claim.checkVisibility())

/**
 * @param {HTMLTableCellElement} cell
 * @param {boolean} ofFigures In such a column a number beside them, as a batch, is none.
 */
const valueOf = (cell, ofFigures) => {
  const figure = ofFigures ? shown(cell) : cell
  return value(figure instanceof HTMLElement ? figure.innerText : "", cell.innerText)
}

/** @param {HTMLTableElement} table @param {number} column @param {number} direction */
const sort = (table, column, direction) => {
  const [body] = table.tBodies, cells = [...body.rows].map(row => row.cells[column])
  const ofFigures = cells.some(shown), keys = cells.map(cell => ({ cell, value: valueOf(cell, ofFigures) }))
  /** @param {string} name */
  const often = name => keys.filter(key => key.value[0] === name).length
  keys.sort((one, other) => isNaN(one.value[1]) && isNaN(other.value[1])
    ? direction * one.cell.innerText.localeCompare(other.cell.innerText)
    : compared(one.value, other.value, direction, often))
  body.append(...keys.flatMap(({ cell }) => cell.parentElement ?? []))
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("table").forEach(table => {
  if (!table.closest(".sortable")) return
  const headings = [...table.tHead?.rows[0].cells ?? []]
  headings.forEach((heading, column) => {
    const button = document.createElement("button")
    button.append(...heading.childNodes)
    heading.append(button)
    button.addEventListener("click", () => {
      const isUp = heading.getAttribute("aria-sort") === "ascending"
      headings.forEach(other => other.removeAttribute("aria-sort"))
      heading.setAttribute("aria-sort", isUp ? "descending" : "ascending")
      sort(table, column, isUp ? -1 : 1)
    })
  })
}))
