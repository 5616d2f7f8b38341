// What a query says beside names: an objective, tokens of a sequence or of all data, rows, users.
import { COUNTS } from "./names.mjs"

const ANSWER = 256 // tokens, as the form has it
const LEAST = 32 // tokens of a sequence
const TOKENS = /\b([\d,.]*\d) ?(b|bn|billion|t|trillion|m|million)? tokens\b(?! ?\/| per\b)/i
const ROWS = /\b([\d,]+) ?(k)? (?:samples|examples|rows|conversations|chats|pairs|documents)\b/i

/** @param {string} text */
const amount = text => Number(text.replaceAll(",", ""))

/** @param {string} query Tokens of a sequence, where they are enough for one. */
const lengthOf = query => {
  const context = query.match(/\b(\d{1,3}) ?k\b(?= ?(?:tokens|context|sequence|length))/i)?.[1]
  const [, tokens, unit] = query.match(TOKENS) ?? []
  const length = context ? 1024 * Number(context) : tokens && !unit ? amount(tokens) : 0
  return length >= LEAST ? length : 0
}

/** @param {string} query */
const usersOf = query => {
  const people = query.match(/\b(\w+) (?:users|readers|people)\b/i)?.[1] ?? ""
  const users = COUNTS[people] ?? (Number(people) || 0)
  return users > 1 ? users : 0
}

/** @typedef {[string, string | number | undefined][]} Asked fields of the form */

/** @param {string} query @returns {Asked} */
const ofTraining = query => {
  const [, rows, thousand] = query.match(ROWS) ?? [], [, tokens, unit] = query.match(TOKENS) ?? []
  return [
    ["rows", rows ? amount(rows) * (thousand ? 1000 : 1) : 0],
    ["objective", query.match(/\b(dpo|grpo)\b/i)?.[1].toLowerCase()],
    ["length", lengthOf(query)], ["tokens", unit ? `${tokens}${unit[0].toUpperCase()}` : ""]
  ]
}

/**
 * What else a question says: an objective, tokens of a sequence or of all data, users.
 * @param {string} query @param {string} task @param {number} positions of the model
 */
export const details = (query, task, positions = Infinity) => {
  /** @type {Asked} */
  const ofGeneration = [["users", usersOf(query)], ["prompt", Math.min(lengthOf(query), positions - ANSWER)]]
  return (task === "infer" ? ofGeneration : ofTraining(query)).filter(([, value]) => value)
}
