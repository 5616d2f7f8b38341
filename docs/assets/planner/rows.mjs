// The rows of the table: what they cost, and in which order they stand.

/** @import { Question } from "./question.mjs" */
/** @import { Row } from "./types.js" */

/**
 * @typedef {object} Priced
 * @property {Question} question
 * @property {string} axis "gpu" or "model": what differs from row to row
 * @property {number} tokens of the reader's data; 0 where that is not said
 * @property {Record<string, string>} prices of a GPU hour, by GPU: the reader's own
 */

/**
 * @param {Row} row
 * @param {Priced} by Hours of all data, or of a million tokens of answers; 0 where there is no answer.
 */
export const hours = (row, { question, tokens }) => {
  if (row.fit === "no") return 0
  if (question.infer) return row.hours_of_million ?? 0
  return row.tokens_per_second ? tokens / 3600 / row.tokens_per_second : 0
}

/** @param {Row} row @param {Priced} by Of a GPU hour; 0 where none is given. That of the form is of its GPU. */
export const price = (row, { question, axis, prices }) => {
  const own = question.gpu?.name ?? question.text("gpu").trim()
  const given = axis === "gpu" && row.name !== own ? prices[row.name] : prices[own] ?? question.text("price")
  return Number(given) || 0
}

/** @param {Row} row @param {Priced} by */
export const cost = (row, by) => hours(row, by) * price(row, by) * (by.question.count("gpus") || 1)

const ORDER = { fits: 0, maybe: 1, no: 2 }
const LAST = 1e12 // of what has no cost

/**
 * What fits first, then by a column, then the fastest.
 * @param {Row[]} rows @param {string} column of SORTS @param {Priced} by
 */
export const sorted = (rows, column, by) => {
  /** @type {Record<string, (row: Row) => number>} */
  const keys = {
    rate: row => -(row.tokens_per_second ?? 0), cost: row => cost(row, by) || LAST, memory: row => row.gpu_gib
  }
  return [...rows].sort((one, other) => ORDER[one.fit] - ORDER[other.fit] ||
    keys[column](one) - keys[column](other) || keys.rate(one) - keys.rate(other))
}
