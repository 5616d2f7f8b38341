// The address carries the question, ?task=lora&model=llama3-8b&gpu=rtx-4090, and the table that is shown with it.

/** @import { Question } from "./question.mjs" */
/** @import { Field, Gpu, Values } from "./types.js" */

const LONGEST = 400 // characters of a value: sizes in words have a hundred
const CUT = 40 // of them, where a longer one is refused
const ALWAYS = ["task", "model", "gpu"]
/** @type {Record<string, string>} The orders of the table. */
export const SORTS = { rate: "tokens/s", cost: "cost", memory: "memory of the GPU" }

/**
 * The values that an address gives, and what of it is refused.
 * @param {string} search @param {Field[]} fields
 * @param {(name: string, value: string) => boolean} takes whether a field can have a value
 */
export const read = (search, fields, takes) => {
  /** @type {Values} */
  const values = {}
  /** @type {string[]} */
  const refused = []
  for (const [name, value] of new URLSearchParams(search)) {
    const field = fields.find(one => one.name === name)
    if (!field) continue
    if (value.length > LONGEST) refused.push(`${name}=${value.slice(0, CUT)}…`)
    else if (field.checkbox) values[name] = value === "1"
    else if (takes(name, value)) values[name] = value
    else {
      values[name] = field.start
      refused.push(`${name}=${value}`)
    }
  }
  return { values, refused }
}

/** @param {Question} question Its address: what differs from the form's own values, and always what is asked about. */
export const write = question => {
  const search = new URLSearchParams()
  for (const { name, start } of question.fields) {
    const value = question.values[name], words = typeof value === "boolean" ? String(Number(value)) : value
    if (question.asks(name) && value !== start) search.set(name, words)
  }
  for (const name of ALWAYS) search.set(name, question.text(name))
  return String(search)
}

/**
 * The table that an address shows. prices: of a GPU hour, by GPU.
 * @param {string} search @param {Gpu[]} gpus
 */
export const readTable = (search, gpus) => {
  const given = new URLSearchParams(search), sort = given.get("by") ?? ""
  const pairs = (given.get("prices") ?? "").split(",").map(pair => pair.split(":"))
  const known = pairs.filter(([name, price]) => gpus.some(one => one.name === name) && Number(price) > 0)
  return {
    axis: ["gpu", "model"].find(one => one === given.get("table")),
    by: Object.hasOwn(SORTS, sort) ? sort : undefined,
    prices: Object.fromEntries(known)
  }
}

/**
 * The address of a question with its table behind it: one question has one address.
 * @param {string} search @param {{axis: string, by: string, prices: Record<string, string>}} table
 */
export const withTable = (search, { axis, by, prices }) => {
  const address = new URLSearchParams(search), priced = Object.entries(prices).filter(([, price]) => price)
  const parts = { table: axis, by: by === "rate" ? "" : by, prices: priced.map(pair => pair.join(":")).join(",") }
  for (const [name, value] of Object.entries(parts)) {
    address.delete(name)
    if (value) address.set(name, value)
  }
  return String(address)
}
