// The answer of generated text.
import { make } from "../shared/dom.mjs"
import { number, range } from "../shared/numbers.mjs"
import { changed, named } from "./changes.mjs"
import { head } from "./head.mjs"
import { memory } from "./memory.mjs"
import { address, band, facts, grid, line, take } from "./parts.mjs"

/** @import { Part } from "../shared/dom.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { Other, Serving, Shown, Speed } from "./types.js" */

/** @param {Question} question @param {Serving} found @returns {(readonly [string, Part])[]} */
const speeds = (question, { speed, unpredicted }) => {
  if (!speed) return [["Speed", unpredicted ? `none is predicted: ${unpredicted}` : "none, since it does not fit"]]
  const users = question.count("users"), { tokens_per_second: rate, low, high } = speed
  return [
    ["Speed", band(rate, low, high, `tokens/s${users > 1 ? " of all users" : ""}`)],
    ["For each user", users > 1 && `${number(rate / users)} tokens/s`],
    ["First token", firstToken(speed)]
  ]
}

/** @param {Speed} speed @returns {Part} */
const firstToken = ({ seconds_to_first_token: seconds, first_low: low, first_high: high }) => {
  if (seconds === null) return "not predicted: hardly published of such machines"
  const [unit, per] = /** @type {[string, number]} */ (seconds < 1 ? ["ms", 1000] : ["s", 1])
  if (low && high) return band(per * seconds, per * low, per * high, unit)
  const why = "no measurement of such weights is published, so there is no low and high"
  return [make("b", {}, number(per * seconds)), ` ${unit}; ${why}`]
}

/** @param {Question} question @param {Serving} found @returns {Part} */
const cost = (question, found) => {
  const { cost_of_million: each, hours_of_million: hours = NaN } = found
  if (!each) return undefined
  const { hours_of_million_low: low = NaN, hours_of_million_high: high = NaN } = found
  const users = question.count("users") > 1 ? "so many users are" : "this one user is"
  const between = range(low * each / hours, high * each / hours)
  return [make("b", {}, number(each)), ` (${between}) for a million tokens of answers, their prompts read too, ` +
    `at ${question.text("price")} for a GPU and hour, while ${users} busy`]
}

/** @param {Question} question @param {Serving} found @returns {Part} */
const sharedMemory = (question, { gpu_gib: size }) => {
  const section = question.gpu?.name === "strix-halo" ? "strix-halo" : "apple"
  const link = make("a", { href: address(`hardware/other/#${section}`) }, "told otherwise")
  return [`${number(size)} GiB of the computer's, unless `, link]
}

/** @param {Question} question @param {Other[]} changes */
const wouldFit = (question, changes) => changes.length
  ? [make("h2", {}, "What would fit"), grid(["Change", "Tokens/s", "Memory", ""], changes.map(one => line(
    named(one.option), one.tokens_per_second ? number(one.tokens_per_second) : "–", `${number(one.expected_gib)} GiB`,
    take("apply", changed(one.option, question) ?? {}))))]
  : []

/** @param {Shown} shown @param {Serving} found */
export const served = (shown, found) => {
  const { question } = shown, { users, longest } = found
  return [
    ...head(shown, found), ...memory({ weights: found.weights_gib, "KV cache": found.cache_gib }, found),
    facts([
      ...speeds(question, found),
      ["Cost", cost(question, found)],
      ["Memory of the GPU", question.shared && sharedMemory(question, found)],
      ["Users at once", users && !question.shared && [`${number(users)} fit with this prompt and answer `,
        question.count("users") !== users && take("apply", { users: String(users) })]],
      ["Longest context", longest && `${number(longest)} tokens of one user`]
    ]),
    ...wouldFit(question, found.changes)
  ]
}
