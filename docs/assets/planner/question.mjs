// A question: the values of the form, and what follows from them.
import { gpuOf } from "./names.mjs"

/** @import { Field, Offered, Values } from "./types.js" */
/** @typedef {ReturnType<typeof questionOf>} Question */

/**
 * Made anew whenever the form changes, so that an answer belongs to one question.
 * @param {Values} values @param {Field[]} fields @param {Offered} offered
 */
export const questionOf = (values, fields, offered) => {
  /** @param {string} name */
  const text = name => String(values[name] ?? "")
  /** @param {string} name */
  const count = name => Number(text(name))
  /** @param {string} name */
  const on = name => values[name] === true

  const task = text("task"), objective = text("objective"), gpu = gpuOf(offered, text("gpu"))
  const infer = task === "infer", train = !infer, full = task === "full", many = train && count("gpus") > 1
  /**
   * @type {Record<string, boolean>} Parts of the form that belong to some questions: data-for-task in
   * docs/your-model.md.
   */
  const groups = {
    train, infer, full, many, adapters: train && !full, grpo: train && objective === "grpo",
    pairs: train && objective === "dpo", nodes: many && count("gpus") > count("gpus-per-node"),
    shared: infer && gpu?.trains === false // CPU and GPU share one memory
  }
  const { grpo, pairs, nodes, shared } = groups
  /** @param {string} group */
  const is = group => groups[group] ?? false
  /** @param {string} name Whether a field belongs to the question. */
  const asks = name => fields.some(field => field.name === name && field.groups.every(is))
  return {
    values, fields, offered, text, count, on, is, asks, task, objective, gpu,
    infer, train, full, many, grpo, pairs, nodes, shared
  }
}
