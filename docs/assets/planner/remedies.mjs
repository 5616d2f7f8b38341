// What would help a training step: changes, and strategies for several GPUs.
import { make } from "../shared/dom.mjs"
import { number, range } from "../shared/numbers.mjs"
import { asInForm, changed, offeredStrategy } from "./changes.mjs"
import { folded, grid, line, take } from "./parts.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Change, Option, Shown } from "./types.js" */

const ALIKE = .02 // of a speed: as fast

/** @param {Question} question @param {Change[]} changes @param {number} now tokens per second */
export const helps = (question, changes, now) => {
  if (!changes.length) return []
  const rows = changes.map(one => {
    const alone = question.full && /--q?lora/.test(one.option) ? ": adapters alone" : ""
    const times = one.tokens_per_second / now
    const fit = { fits: "", maybe: ", may fit", no: ", does not fit" }[one.fit]
    const values = changed(one.option, question)
    return line(`${asInForm(one.change)}${alone}`,
      `${number(one.tokens_per_second)}, ${Math.abs(times - 1) < ALIKE ? "as fast" : `${number(times)} times`}`,
      `${number(one.expected_gib)} GiB${fit}`, values ? take("apply", values) : one.option)
  })
  return [make("h2", {}, "What would help"), grid(["Change", "Tokens/s", "Memory", ""], rows)]
}

/** @param {Option} one */
const speed = ({ offload, tokens_per_second: rate, seconds, low, high }) => {
  if (offload) return `at most ${number(rate)}: AdamW on the host is not counted`
  if (!low || !high) return `${number(rate)}; nobody published such a step`
  return `${number(rate)} (${range(rate * seconds / high, rate * seconds / low)})`
}

/** @param {Question} question @param {Shown["plan"]} plan @param {string[]} offered strategies of the form */
export const strategies = (question, plan, offered) => {
  if (!plan) return []
  if ("error" in plan) return [make("h2", {}, "Which strategy"), make("p", {}, plan.error)]
  /** @param {Option[]} some */
  const shown = some => grid(["Strategy", "Memory of a GPU", "Tokens/s", "Why"], some.map(one => {
    const strategy = offeredStrategy(one, question, offered), name = make("b", {}, one.strategy)
    const { code, host_gb: needed = 0, host_memory_gb: has } = one.why
    const why = code === "host-memory" && !has
      ? `needs ${number(Math.max(1, Math.round(needed)))} GB of each host's memory, so give “Memory of a host”`
      : one.verdict
    return line(strategy ? make("span", {}, name, " ", take("apply", { strategy })) : name,
      `${range(one.expected_gib, one.high_gib)} GiB`, speed(one), why)
  }))
  const title = make("h2", {}, "Which strategy, with this batch")
  return [title, ...folded(plan, ["strategy", "strategies"], shown)]
}
