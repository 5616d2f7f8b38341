// A change is named by the command's own option: what it sets in the form, and how the page calls it.

/** @import { Question } from "./question.mjs" */
/** @import { Option, Values } from "./types.js" */

/** @type {Record<string, string>} Formats of weights, by the engine that reads them. */
export const FORMATS = {
  published: "as its checkpoint is published",
  bf16: "16 bits", fp8: "8 bits: fp8", int8: "8 bits: int8", "int4-128": "4 bits: AWQ, GPTQ",
  "int4-64": "4 bits, a scale for 64", "int4-32": "4 bits, a scale for 32", nvfp4: "4 bits: NVFP4",
  mxfp4: "4 bits: MXFP4", q8_0: "8 bits in llama.cpp: Q8_0", q4_k_m: "4 bits in llama.cpp: Q4_K_M",
  q4_0: "4 bits in llama.cpp: Q4_0", fp16: "16 bits: fp16", fp32: "32 bits"
}

/** @param {string[]} names The formats in the order of the list above, unknown ones last. */
export const inOrder = names => {
  const ranks = Object.keys(FORMATS)
  /** @param {string} name */
  const rank = name => ranks.includes(name) ? ranks.indexOf(name) : ranks.length
  return [...names].sort((one, other) => rank(one) - rank(other))
}

/**
 * What a change sets in the form; undefined where the form has no such field.
 * @param {string} option such as "--qlora 16 --checkpointing --dtype bf16" or "without --compile"
 * @param {Question} question @returns {Values | undefined}
 */
export const changed = (option, { fields }) => {
  const isGone = option.startsWith("without "), all = [...option.matchAll(/--([\w-]+)(?: ([^\s-]\S*))?/g)]
  const said = all.map(([, name, value]) => ({ name, value }))
  const method = said.find(({ name }) => name === "lora" || name === "qlora")?.name
  /** @type {Values} */
  const values = method ? { task: method } : {}
  for (const { name, value } of said) {
    // Adapters leave the weights in 16 bits: the form does not ask for their dtype.
    if (name === method || method && name === "dtype") continue
    const field = fields.find(one => one.name === name)
    if (!field) return undefined
    values[name] = field.checkbox ? !isGone : value
  }
  return values
}

/** @param {string} option of what would fit: GPUs and formats of weights, as the form calls them */
export const named = option => [...option.matchAll(/--(\w+) (\S+)/g)]
  .map(([, name, value]) => name === "gpus" ? `${value} GPUs` : FORMATS[value] ?? value).join("; ")

/** @param {string} change as the form calls it */
export const asInForm = change => change.replace("a fused cross entropy", "fused loss")

/**
 * The strategy that the form has for one of a plan, where it is of the method that is asked and not chosen already.
 * @param {Pick<Option, "strategy">} one @param {Question} question @param {string[]} offered of the form
 */
export const offeredStrategy = (one, question, offered) => {
  const [, method, name] = one.strategy.match(/^(?:(Q?LoRA) x )?([\w-]+)$/) ?? []
  const value = name?.toLowerCase().replace("-", ""), task = method?.toLowerCase() ?? "full"
  const isOther = value && value !== (question.text("strategy") || "fsdp2")
  return isOther && task === question.task && offered.includes(value) ? value : ""
}
