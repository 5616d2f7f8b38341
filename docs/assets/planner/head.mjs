// The head of an answer: what was asked as it was understood, the verdict, and what one should know about it.
import { make } from "../shared/dom.mjs"
import { number } from "../shared/numbers.mjs"
import { DEFAULTS, amount, waitsForData } from "./command.mjs"
import { note, to } from "./parts.mjs"
import { verdictOf } from "./verdict.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Serving, Shown, Training } from "./types.js" */

/** @param {Shown} shown @param {Training | Serving} found */
const notes = ({ question, refused }, found) => {
  const isTraining = question.train, hasData = amount(question).length > 0, fits = found.fit !== "no"
  return [
    refused.length && `Not a choice of this page, which took its own first value: ${refused.join(", ")}.`,
    found.mixture && isTraining && ["A mixture of experts: ",
      to("our own measurement", "evidence/gpu-time/#own-h200"), " took longer than this band says."],
    waitsForData(question) && "Say how many rows or tokens your data has: then epochs and price count.",
    found.fp16 && "This GPU has no bf16. It is counted as fp16, which takes as long and needs a loss scaler: " +
      "set fp16=True, not bf16=True.",
    hasData && !fits && "Hours and cost are told where it fits.",
    isTraining && question.text("rows") && fits &&
      "Each row is counted as a whole sequence. Shorter rows take less, unless they are padded.",
    found.judged === false &&
      "No measurement of such a step is published: low and high are those of the nearest kind."
  ].flatMap(said => said ? [note(said)] : [])
}

/** @param {Question} question How much is asked for, at once. */
const sizeOf = question => {
  /** @param {string} name */
  const each = name => number(question.count(name) || Number(DEFAULTS[name]))
  return question.infer
    ? `${number(question.count("users") || 1)} x ${each("prompt")} tokens of prompt, ${each("new")} new`
    : `${each("batch")} x ${question.pairs ? "2 x " : ""}${each("length")} tokens`
}

/** @param {Training | Serving} found */
const parametersOf = ({ parameters, trained = parameters }) => {
  const adapters = trained < parameters ? trained : 0
  return `${number((parameters - adapters) / 1e9)} billion parameters` +
    (adapters ? ` and ${number(adapters / 1e6)} million of adapters` : "")
}

/** @param {Question} question @param {string} name The GPU with the memory that the reader's has. */
const cardOf = ({ offered, shared, text }, name) => {
  const label = offered.gpus.find(one => one.name === name)?.label ?? name
  return shared && text("memory") ? label.replace(/\d+GB$/, `${text("memory")}GB`) : label
}

/** @param {Shown} shown @param {Training | Serving} found */
export const echo = ({ question, known }, found) => {
  const isMany = found.gpus > 1
  return make("p", { className: "planner-echo" },
    `${known ? found.model : `${found.model} with your sizes`}, ${parametersOf(found)}; `,
    `${sizeOf(question)}${isMany && question.train ? " on each" : ""}; `,
    `${isMany ? `${found.gpus} x ` : ""}${cardOf(question, found.gpu)}`)
}

/** @param {Parameters<typeof verdictOf>[0]} found @param {Question} question */
export const verdict = (found, question) => {
  const { said, reason } = verdictOf(found, question.count("gpus") > 1)
  const properties = { className: `planner-verdict ${found.fit}`, role: "status", tabIndex: -1 }
  return make("p", properties, make("b", {}, said), reason)
}

/** @param {Shown} shown @param {Training | Serving} found */
export const head = (shown, found) => [echo(shown, found), verdict(found, shown.question), ...notes(shown, found)]
