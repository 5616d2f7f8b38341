// Names of models and GPUs among the words of a query.

/** @import { Model } from "../planner/types.js" */
/** @typedef {{name: string, before?: string, at: number, size: number}} Named a name in the words of a query */

/** @type {Record<string, number>} */
export const COUNTS = { two: 2, three: 3, four: 4, eight: 8 }
export const SIZE = /^\d+(\.\d+)?b$/ // billions of parameters
const NEWEST = ["qwen3-", "llama3", "qwen2.5-", ""] // of several models of a size the first
/** @type {Record<string, string>} A GPU that has so many GB. */
const OF_MEMORY = {
  8: "rtx-4060", 12: "rtx-3060-12", 16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090", 48: "rtx-6000-ada", 80: "h100-sxm5"
}
const MOST_WORDS = 5 // of a name

/**
 * @param {Record<string, string>} called
 * @param {string[]} words
 * @returns {Named | undefined} the longest name among them
 */
export const named = (called, words) => {
  for (let size = MOST_WORDS; size; size--) {
    for (let at = 0; at + size <= words.length; at++) {
      const joined = words.slice(at, at + size).join("")
      if (Object.hasOwn(called, joined)) return { name: called[joined], before: words[at - 1], at, size }
    }
  }
  return undefined
}

/** @param {string | undefined} before "8 h100", "2x 3090" @param {string} [after] "3090 x2" */
const count = (before = "", after = "") =>
  COUNTS[before] ?? Number(/^(\d{1,4})x?$/.exec(before)?.[1] ?? /^x(\d{1,2})$/.exec(after)?.[1] ?? 1)

/**
 * @param {Model[]} models
 * @param {string[]} words
 * @returns {{name: string, as: string} | undefined} "70b": one that is called so
 */
export const ofSize = (models, words) => {
  const size = words.find(word => SIZE.test(word)), called = models.filter(one => size && one.name.endsWith(`-${size}`))
  const best = NEWEST.map(start => called.find(one => one.name.startsWith(start))).find(Boolean)
  return best && size ? { name: best.name, as: `${size.toUpperCase()}, such as ${best.name},` } : undefined
}

// "4 x rtx 5090", "4x t4"
const TIMES = /\b(\d{1,4}) ?[x×] ?(?=(?:(?:nvidia|geforce|rtx|gtx|tesla|radeon|rx) )*(?:[a-z]+\d|\d{3}))/g

/** @param {string} query @param {Record<string, string>} gpus known spellings @returns {string[]} */
export const wordsOf = (query, gpus) => {
  const apart = query.toLowerCase().replace(TIMES, "$1 ").replace(/\bx (\d{1,2})\b/g, "x$1")
  return (apart.match(/[a-z0-9]+(\.[a-z0-9]+)*/g) ?? []).map(word => { // two 3090s
    const one = word.slice(0, -1)
    return !Object.hasOwn(gpus, word) && word.endsWith("s") && Object.hasOwn(gpus, one) ? one : word
  })
}

/**
 * @typedef {{name: string, many: number, other?: string}} Card a GPU, how many of it, and the one that it is compared
 * with
 */

/** @param {string} query @param {string[]} words @param {Record<string, string>} known @returns {Card | undefined} */
export const cardOf = (query, words, known) => {
  const found = named(known, words)
  if (!found) {
    const name = OF_MEMORY[query.match(/\b(\d{1,2}) ?gb\b/i)?.[1] ?? ""]
    return name ? { name, many: 1 } : undefined
  }
  const other = / (vs\.?|versus|or|against) /i.test(query) && named(known, words.slice(found.at + found.size))
  const many = count(found.before, words[found.at + found.size])
  return { name: found.name, many, other: other ? other.name : undefined }
}
