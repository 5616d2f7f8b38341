// The answer of a question as parts of the page, whatever kind of answer it is.
import { flat, make } from "../shared/dom.mjs"
import { commands, next } from "./commands.mjs"
import { verdict } from "./head.mjs"
import { band, facts } from "./parts.mjs"
import { refusedParts } from "./refused.mjs"
import { served } from "./served.mjs"
import { trained } from "./trained.mjs"

/** @import { Form } from "./form.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { Judged, Shown } from "./types.js" */

/**
 * @param {Shown} shown
 * @param {Form} form
 * @param {() => Node} table where the question can be asked for every GPU or model
 */
export const answerParts = (shown, form, table) => {
  const found = shown.train ?? shown.infer
  if (!found) return []
  if ("error" in found) return flat(refusedParts(shown, found, form))
  form.mark()
  const strategies = form.control("strategy")
  const offered = strategies instanceof HTMLSelectElement ? [...strategies.options].map(one => one.value) : []
  const parts = "memory_gib" in found ? trained(shown, found, offered) : served(shown, found)
  return flat([parts, commands(shown), next(shown.question), table()])
}

/** @param {Question} question @param {Judged} found Memory and speed alone: the rest of the answer follows. */
export const earlyParts = (question, found) => {
  const { tokens_per_second: rate, low, high } = found
  const ofAll = question.many ? " of all GPUs" : question.infer && question.count("users") > 1 ? " of all users" : ""
  const speed = rate && facts([["Speed", band(rate, low ?? NaN, high ?? NaN, `tokens/s${ofAll}`)]])
  return flat([verdict(found, question), speed])
}

/** @param {Shown} shown @param {() => void} clicked Where the browser saves data, a click comes before the download. */
export const offerParts = (shown, clicked) => {
  const text = "Ask: this loads Python, some 7 MB the first time"
  const button = make("button", { type: "button", className: "md-button" }, text)
  button.addEventListener("click", clicked)
  return [button, commands(shown)]
}

/** @param {Shown} shown @param {string | undefined} message */
export const failedParts = (shown, message) => {
  const why = message ?? "this browser has no module workers"
  return [make("p", {}, `The page could not start Python: ${why}. On the command line:`), commands(shown)]
}
