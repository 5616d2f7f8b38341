// How much a cell says: what is measured, and a number by which a column is sorted. Times are in seconds.

/** @type {Record<string, number>} */
const BYTES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, MB: 1e6, GB: 1e9, TB: 1e12 }
/** @type {Record<string, number>} */
const SECONDS = {
  ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, minute: 60, minutes: 60, h: 3600, hour: 3600, hours: 3600,
  day: 86400, days: 86400
}
const AMOUNT = /(-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)\s*([a-zµ]+\b|%)?/i

/** @typedef {[string, number]} Value what is measured, and how much: NaN where there is no number */

/** @param {string} figure the text with the number @param {string} text of the whole cell @returns {Value} */
export const value = (figure, text) => {
  const [, digits, unit = ""] = figure.match(AMOUNT) ?? []
  if (!digits) return ["", NaN]
  const amount = parseFloat(digits.replaceAll(",", ""))
  if (Object.hasOwn(BYTES, unit)) return ["bytes", amount * BYTES[unit]]
  if (Object.hasOwn(SECONDS, unit)) return ["time", amount * SECONDS[unit]]
  const isLess = /\b(less|lower|fewer|smaller)\b/.test(text), isSlower = /the time\b|\bslower\b/.test(text)
  if (unit === "x") return ["ratio", isLess || isSlower ? 1 / amount : amount] // half the time is twice the speed
  return [unit, isLess ? -amount : amount]
}

/**
 * The order of two cells. What is no number comes last, in both directions, and what the column has more often comes
 * first: never % among GiB.
 * @param {Value} one @param {Value} other @param {number} direction 1 or -1 @param {(what: string) => number} often
 */
export const compared = ([what, x], [other, y], direction, often) => {
  if (isNaN(x) || isNaN(y)) return Number(isNaN(x)) - Number(isNaN(y))
  return what === other ? direction * (x - y) : often(other) - often(what) || what.localeCompare(other)
}
