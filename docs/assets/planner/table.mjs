// The same question for every GPU, or for every model, as a table.
import { flat, make } from "../shared/dom.mjs"
import { number, range } from "../shared/numbers.mjs"
import { SORTS } from "./address.mjs"
import { folded, grid, line, note, take } from "./parts.mjs"
import { cost, hours, price, sorted } from "./rows.mjs"

/** @import { Priced } from "./rows.mjs" */
/** @import { Row } from "./types.js" */
/**
 * @typedef {{sorted: (by: string) => void, typed: () => void, left: () => void}} Tell of an order; of a price; that the
 * cursor left
 */

const REST = 500 // milliseconds: a click that ends a price finds its button still there

/**
 * @typedef {object} Table
 * @property {Priced} priced
 * @property {Row[]} rows
 * @property {string} by one of SORTS
 * @property {string} leftOut why some rows are missing
 */

/**
 * @template {HTMLElement} T
 * @param {T} element
 * @param {string} key by which the cursor finds its place in the next table
 */
const keyed = (element, key) => {
  element.dataset.key = key
  return element
}

/** @param {Priced} priced @param {string} name */
const labelOf = ({ axis, question }, name) =>
  axis === "gpu" ? question.offered.gpus.find(one => one.name === name)?.label ?? name : name

/** @param {Table} table @param {Tell} tell */
const order = ({ by }, tell) => {
  const options = Object.entries(SORTS).map(([value, text]) => make("option", { value, selected: value === by }, text))
  const list = keyed(make("select", {}, options), "sorted")
  list.addEventListener("change", () => tell.sorted(list.value))
  return make("label", {}, "Sorted by ", list)
}

/** @param {Row} row @param {Table} table @param {Element} place @param {Tell} tell */
const priceCells = (row, { priced }, place, tell) => {
  const write = () => cost(row, priced) ? number(cost(row, priced)) : "–"
  const total = make("td", {}, write()), value = price(row, priced)
  const box = keyed(make("input", { inputMode: "decimal", value: value ? String(value) : "",
    ariaLabel: `Price of an hour of ${labelOf(priced, row.name)}` }), `price ${row.name}`)
  box.addEventListener("input", () => {
    if (box.value.includes(",")) box.value = box.value.replace(",", ".")
    priced.prices[row.name] = box.value
    total.textContent = write()
  })
  box.addEventListener("change", tell.typed)
  box.addEventListener("keydown", event => { // to the next price
    if (event.key !== "Enter") return
    const boxes = [...place.querySelectorAll("input")]
    boxes[boxes.indexOf(box) + 1]?.focus()
  })
  box.addEventListener("blur", () => setTimeout(() => {
    if (!place.contains(document.activeElement)) tell.left()
  }, REST))
  return [make("td", {}, box), total]
}

/** @param {Row} row */
const speed = row => {
  const { tokens_per_second: rate, low, high, unpredicted } = row
  if (rate) return `${number(rate)} (${range(low ?? NaN, high ?? NaN)})`
  return unpredicted && row.fit !== "no" ? make("span", { title: unpredicted }, "not predicted") : "–"
}

const FITS = { fits: "yes", maybe: "maybe", no: "no" }

/** @param {Priced} priced Which columns the table has: hours of the data, and what they cost. */
const columns = ({ question, axis, tokens }) => {
  const isTimed = question.train && tokens > 0
  return { isTimed, hasCosts: axis === "gpu" && (isTimed || question.infer) }
}

/** @param {Row} row @param {Table} table @param {Element} place @param {Tell} tell */
const lineOf = (row, table, place, tell) => {
  const { priced } = table, { isTimed, hasCosts } = columns(priced), time = hours(row, priced)
  const found = line(keyed(take(labelOf(priced, row.name), { [priced.axis]: row.name }), `name ${row.name}`),
    ...(isTimed ? [time ? number(time) : "–"] : []), FITS[row.fit],
    `${range(row.expected_gib, row.high_gib)} of ${number(row.gpu_gib)} GiB`, speed(row))
  if (hasCosts) found.cells[0].after(...priceCells(row, table, place, tell))
  return found
}

/** @param {Table} table @param {Tell} tell What stands above it: its order, or what it lacks. */
const above = (table, tell) => {
  const { question, axis } = table.priced, { isTimed, hasCosts } = columns(table.priced)
  if (hasCosts) return [order(table, tell), note("Type what you pay for an hour. Enter leads to the next price.")]
  return question.train && !isTimed && note("Say how many rows or tokens your data has: " +
    `then this table shows hours${axis === "gpu" ? " and cost" : ""}.`)
}

/** @param {Element} place @param {Table} table @param {Tell} tell */
export const drawTable = (place, table, tell) => {
  const { question, axis } = table.priced, { isTimed, hasCosts } = columns(table.priced)
  const rows = sorted(table.rows, table.by, table.priced)
  const isTight = question.train && !question.on("fused-loss") && rows.some(row => row.fit === "no")
  const [head, ...called] = axis === "gpu" ? ["GPU", "GPU", "GPUs"] : ["Model", "model", "models"]
  const heads = [
    head, ...(hasCosts ? ["Price of an hour", question.infer ? "Cost of a million tokens" : "Cost"] : []),
    ...(isTimed ? ["Hours of your data"] : []), "Fits", "Memory", "Tokens/s"
  ]
  const grids = folded(rows, called, some => grid(heads, some.map(row => lineOf(row, table, place, tell))))
  place.replaceChildren(...flat([
    above(table, tell),
    isTight && note("With a fused loss a step needs less memory: ", take("apply", { "fused-loss": true })),
    grids, table.leftOut && make("p", {}, `Some are left out: ${table.leftOut}`)
  ]))
}
