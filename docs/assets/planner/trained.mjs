// The answer of a training step.
import { make } from "../shared/dom.mjs"
import { number, range } from "../shared/numbers.mjs"
import { asInForm } from "./changes.mjs"
import { head } from "./head.mjs"
import { judged } from "./measured.mjs"
import { memory } from "./memory.mjs"
import { band, facts, note, take, to } from "./parts.mjs"
import { helps, strategies } from "./remedies.mjs"
import { days } from "./verdict.mjs"

/** @import { Part } from "../shared/dom.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { Shown, Training } from "./types.js" */

/** @type {Record<string, string>} */
const CALLED = {
  parameters: "weights", optimizer: "optimizer state", "weight copies": "16-bit copies of weights", inputs: "inputs"
}
/** @type {Record<string, string>} */
const LIMITS = {
  compute: "computing", bandwidth: "memory bandwidth", launches: "launches", communication: "communication"
}
const WORTH = 1.5 // times as fast: a change that stands beside the time

/** @param {Training} found Tokens per second, with low and high. @returns {[number, number, number]} */
const ratesOf = ({ tokens_per_second: rate, seconds, low, high }) => [rate, rate * seconds / high, rate * seconds / low]

/** @param {Training} found */
const step = ({ seconds, bound, klass, high }) => {
  const launches = klass === "launch-bound" && ": it waits for launches, so the CPU decides, " +
    `and it can take ${number(high / seconds, 2)} times as long`
  return `${number(seconds)} s, limited by ${LIMITS[bound] ?? bound}${launches || ""}`
}

/** @param {Question} question @param {Training} found */
const links = (question, { link_gb_per_s: link, network_gb_per_s: network }) => {
  if (!link) return undefined
  const parts = [
    question.text("gpus-per-node") !== "1" && `${number(link, 2)} GB/s between GPUs`,
    network && `${number(network, 2)} GB/s of each GPU to other nodes`
  ].filter(Boolean)
  return `${parts.join(", ")}, in one direction: assumed`
}

/** @param {Question} question @param {Training} found @returns {Part[]} */
const utilization = (question, { mfu }) => [
  `${number(100 * mfu, 2)} % of the peak in 16 bits`,
  mfu > 1 && " (it counts attention whole, and a causal one skips half)", ", ",
  !question.full && "counted for adapters: a log that counts 6 FLOPs for each parameter and token shows " +
    "about 1.5 times as much; ",
  to("without recomputation", "debugging/#mfu")
]

/** @param {string} text @param {Training} found @returns {Part[]} */
const measured = (text, found) => {
  const [expected, low, high] = ratesOf(found), { said, leads } = judged(text, { expected, low, high, mfu: found.mfu })
  return [said, leads && to(leads, "debugging/#mfu")]
}

/** @param {Training} found The change that makes most of the difference. @returns {Part[]} */
const sooner = ({ changes = [], tokens_per_second: rate, hours = 0 }) => {
  const [best] = changes, times = best?.fits ? best.tokens_per_second / rate : 0
  if (times <= WORTH) return []
  const change = asInForm(best.change).replace(/^an? /, "")
  return ["; ", make("b", {}, number(hours / times)), ` hours${days(hours / times)} with ${change}`]
}

/** @param {Question} question @param {Training} found @returns {(readonly [string, Part])[]} */
const bill = (question, found) => {
  const { hours, hours_low: low = NaN, hours_high: high = NaN, cost } = found
  if (!hours || found.fit === "no") return []
  const data = [...band(hours, low, high, "hours"), days(hours), ...sooner(found)]
  if (!cost) return [["Your data", data]]
  const between = range(cost * low / hours, cost * high / hours)
  const price = ` (${between}), at ${question.text("price")} for a GPU and hour`
  return [["Your data", data], ["Cost", [make("b", {}, number(cost)), price]]]
}

/** @param {Question} question @param {Training} found @returns {Part} */
const largestBatch = (question, { largest_batch: batch, gpus }) => {
  if (batch === undefined) return undefined
  const one = question.pairs ? "pair" : "sequence"
  if (!batch) return `not even one ${one} surely fits`
  const [many, fit] = batch === 1 ? ["", "fits"] : ["s", "fit"], each = gpus > 1 ? " on each GPU" : ""
  return [`${number(batch)} ${one}${many}${each} surely ${fit} `,
    question.count("batch") !== batch && take("apply", { batch: String(batch) })]
}

/** @param {Shown} shown @param {Training} found @param {string[]} offered strategies of the form */
export const trained = (shown, found, offered) => {
  const { question, plan, more } = shown, no = found.fit === "no"
  const parts = Object.fromEntries(Object.entries(found.memory_gib).map(([name, gib]) => [CALLED[name] ?? name, gib]))
  const own = question.text("measured"), ofAll = found.gpus > 1 ? " of all GPUs" : ""
  const help = [
    ...(more ? [note("What would help …")] : []), ...helps(question, found.changes ?? [], found.tokens_per_second)
  ]
  return [
    ...head(shown, found), ...(no ? help : []), ...memory(parts, found),
    facts([
      [no ? "Speed, if it fitted" : "Speed", band(...ratesOf(found), `tokens/s${ofAll}`)],
      ["A step", step(found)],
      ["Links", links(question, found)],
      ["Model FLOPs utilization", utilization(question, found)],
      ["Yours", own && measured(own, found)],
      ...bill(question, found),
      ["Largest batch", largestBatch(question, found)]
    ]),
    ...(no ? [] : help), ...strategies(question, plan, offered)
  ]
}
