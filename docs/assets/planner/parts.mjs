// Parts that several answers are made of.
import { make, siteRoot } from "../shared/dom.mjs"
import { number, range } from "../shared/numbers.mjs"

/** @import { Part } from "../shared/dom.mjs" */
/** @import { Fit, Values } from "./types.js" */

/** @param {string} place below the site's overview */
export const address = place => new URL(place, siteRoot()).href

/** @param {string} text @param {string} place */
export const to = (text, place) => make("a", { href: address(place) }, text)

/** @param {...Part} parts */
export const note = (...parts) => make("p", { className: "planner-note" }, ...parts)

/** @param {...Part} parts */
export const refused = (...parts) => make("p", { className: "planner-verdict no", role: "alert" }, ...parts)

/** @param {(readonly [string, Part] | undefined)[]} rows Names and values; a row without a value is left out. */
export const facts = rows => make("dl", { className: "planner-facts" }, ...rows.map(row =>
  row && row[1] ? [make("dt", {}, row[0]), make("dd", {}, row[1])] : []))

/** @param {number} value @param {number} low @param {number} high @param {string} unit @returns {Part[]} */
export const band = (value, low, high, unit) => [make("b", {}, number(value)), ` ${unit} (${range(low, high)})`]

/** @param {string[]} heads @param {HTMLTableRowElement[]} rows */
export const grid = (heads, rows) => {
  const titles = heads.map(head => head ? make("th", { scope: "col" }, head) : make("td"))
  return make("div", { className: "scroll" },
    make("table", {}, make("thead", {}, make("tr", {}, titles)), make("tbody", {}, rows)))
}

/** @param {...Part} cells */
export const line = (...cells) => make("tr", {}, cells.map(cell => make("td", {}, cell)))

/**
 * @param {string} text
 * @param {Values} values A button that changes the question: planner.js listens for its event "take".
 */
export const take = (text, values) => {
  const className = text === "apply" ? "planner-take planner-apply" : "planner-take"
  const button = make("button", { type: "button", className }, text)
  button.addEventListener("click", () =>
    button.dispatchEvent(new CustomEvent("take", { detail: values, bubbles: true })))
  return button
}

/** @param {string} text page.js copies. */
export const toCopy = text =>
  make("pre", {}, make("code", {}, text), make("button", { className: "copy", type: "button" }, "Copy"))

let isUnfolded = false // what a reader has opened stays open in the next answer

/**
 * Rows that do not fit are folded away, where others do.
 * @template {{fit: Fit}} T
 * @param {T[]} all @param {string[]} called one of them, several of them
 * @param {(some: T[]) => HTMLElement} shown
 */
export const folded = (all, [one, several], shown) => {
  const yes = all.filter(row => row.fit !== "no"), no = all.filter(row => row.fit === "no")
  if (!yes.length || !no.length) return [shown(all)]
  const title = no.length === 1 ? `1 ${one} that does not fit` : `${no.length} ${several} that do not fit`
  const rest = make("details", { open: isUnfolded }, make("summary", {}, title), shown(no))
  rest.addEventListener("toggle", () => { isUnfolded = rest.open })
  return [shown(yes), rest]
}
