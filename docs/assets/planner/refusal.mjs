// What dryrun refuses, in the words of the page, and at the field that it is about.
import { number } from "../shared/numbers.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Refusal } from "./types.js" */

/** @type {Record<string, string>} Fields of Python that the form calls otherwise. */
const FIELDS = { precision: "dtype", compiled: "compile", fused_loss: "fused-loss", method: "task",
  host_memory_gb: "host-memory", memory_gb: "memory", lora: "rank", qlora: "rank" }

/**
 * @param {string} name of a field of Python, or of an option
 * @param {Question} question @returns {string} of the form
 */
export const fieldOf = (name, question) => {
  if (name === "batch" && question.infer) return "users"
  if (name === "new" && question.grpo) return "written"
  if (name === "prompt + new") return "prompt"
  return FIELDS[name] ?? name.replaceAll("_", "-")
}

/** @param {Refusal} refused @param {Question} question @returns {string | undefined} the field at fault */
export const fieldAtFault = ({ refusal }, question) => refusal?.field ? fieldOf(refusal.field, question) : undefined

/** @param {Refusal} refused @returns {"gpu" | "model" | undefined} which name is not known */
export const unknownName = ({ refusal }) => {
  if (refusal?.code !== "unknown") return undefined
  return refusal.field === "gpu" ? "gpu" : "model"
}

/** @param {Refusal} refused @returns {number | undefined} the longest sequence, where one was too long */
export const longest = ({ refusal }) =>
  refusal?.code === "positions" && refusal.field === "length" ? Number(refusal.nearest[0]) : undefined

/** @param {Refusal} refused Whether others have measured what is not predicted. */
export const isMeasuredElsewhere = ({ refusal }) => ["unpredicted", "one-reader"].includes(refusal?.code ?? "")

/** @param {Refusal} refused Whether the command answers what the page does not. */
export const isAnsweredByTheCommand = ({ refusal }) => ["untraced", "page"].includes(refusal?.code ?? "")

const ONE_READER = "no time is predicted but of text for one reader, by the task “Run it”: " +
  "hardly anything else was published."
const NO_TRACE = "this page has no trace of this model for this question. On a machine with torch the command answers:"

/**
 * @param {Refusal} refused
 * @param {(field: string) => string | undefined} label of a field of Python
 */
export const inPage = ({ error, refusal }, label) => {
  if (!refusal?.field) return error
  const { code, field, given, problem, fix, nearest } = refusal
  const value = typeof given === "number" ? number(given) : String(given), called = label(field) ?? field
  /** @type {Record<string, () => string>} What the page says in other words than the command. */
  const said = {
    option: () => `${called}: ${problem}`,
    unknown: () => `${called} “${value}” is not known here.`,
    unpredicted: () => `GPU “${value}”: ${problem}.`,
    "one-reader": () => `GPU “${value}”: ${ONE_READER}`,
    nodes: () => `${called}: ${value}: ${problem}: take ${nearest[0]}, or say how many a node has, “GPUs in a node”`,
    untraced: () => `${value}: ${NO_TRACE}`,
    positions: () =>
      `${field === "length" ? `${called}: ${value}` : `Prompt and answer: ${value} tokens`}: ${problem}: ${fix}`
  }
  const name = field === "gpu" ? `GPU “${value}”` : field === "model" ? `Model “${value}”` : `${called}: ${value}`
  return said[code]?.() ?? [name, problem, fix].filter(Boolean).join(": ")
}
