// In place of an answer: what was refused, and what one click takes instead.
import { number } from "../shared/numbers.mjs"
import { near } from "./names.mjs"
import { commands } from "./commands.mjs"
import { refused, take, to } from "./parts.mjs"
import * as refusal from "./refusal.mjs"

/** @import { Form } from "./form.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { Refusal, Shown } from "./types.js" */

const LISTS = {
  gpu: ["GPU", "The list under GPU has all names."],
  model: ["Model", "The list under Model has all names. Or give its sizes, or its config.json, below its name."]
}

/** @param {"gpu" | "model"} axis @param {Question} question */
const unknown = (axis, question) => {
  const text = question.text(axis).trim(), [called, where] = LISTS[axis]
  /** @type {{name: string, label?: string}[]} */
  const all = axis === "gpu" ? question.offered.gpus
    : [...question.offered.models, ...question.offered.memory]
  const like = text ? near(text, all) : []
  const names = like.flatMap(one => [take(one.label ?? one.name, { [axis]: one.name }), ", "]).slice(0, -1)
  return refused(`${called} ${text ? `“${text}” is not known here. ` : "is empty. "}`,
    names.length > 0 && ["Is it one of these? ", names, ". "], where)
}

/** @param {Shown} shown @param {Refusal} found @param {Form} form in which the field at fault is marked */
export const refusedParts = (shown, found, form) => {
  const { question } = shown, axis = refusal.unknownName(found)
  form.mark(axis ?? refusal.fieldAtFault(found, question))
  if (axis) return [unknown(axis, question)]
  const most = refusal.longest(found)
  const elsewhere = `hardware/other/${/apple|\bm\d/i.test(question.text("gpu")) ? "#mac-models" : ""}`
  return [
    refused(refusal.inPage(found, field => form.label(refusal.fieldOf(field, question))),
      refusal.isMeasuredElsewhere(found) && [" What others measured: ", to("Other hardware", elsewhere)],
      most !== undefined && [" ", take(`take ${number(most)}`, { length: String(most) })]),
    ...(refusal.isAnsweredByTheCommand(found) ? [commands(shown)] : [])
  ]
}
