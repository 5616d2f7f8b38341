// What dryrun refuses, in the words of the page, and at the field that it is about.
import { number } from "../shared/numbers.mjs"

/** @import { Question } from "./question.mjs" */

/** @param {string} option of the command @param {Question} question @returns {string} the name of its field */
export const fieldOf = (option, question) => {
  if (option === "batch" && question.infer) return "users"
  if (option === "new" && question.grpo) return "written"
  return /^q?lora$/.test(option) ? "rank" : option
}

/** @param {string} error @param {Question} question @returns {string | undefined} the field that a message is about */
export const fieldAtFault = (error, question) => {
  const pattern = /^argument --([\w-]+)|^(gpus?|model|length|batch|users|prompt)\b/
  const [, option, other] = error.match(pattern) ?? [], name = option ?? other
  return name && fieldOf(name, question)
}

/** @param {string} error @returns {"gpu" | "model" | undefined} which name is not known */
export const unknownName = error =>
  /** @type {"gpu" | "model" | undefined} */ (error.match(/^(gpu|model)[= ]'.*' is not known/)?.[1])

/** @param {string} error @returns {number | undefined} the longest sequence, where one was too long */
export const longest = error => {
  const most = error.match(/^length\b.*: take (\d+) or fewer$/)?.[1]
  return most === undefined ? undefined : Number(most)
}

/** @param {string} error Whether others have measured what is not predicted. */
export const isMeasuredElsewhere = error => / no time is predicted/.test(error)

/** @param {string} error Whether the command answers what the page does not. */
export const isAnsweredByTheCommand = error => /with torch|The command below/.test(error)

const OF_SIZES = " Or give its sizes, or its config.json, below its name."
const NO_PROFILE = /no profile answers this question: on a machine with torch the command does$/
const NO_TRACE = "this page has no trace of this model for this question. On a machine with torch the command answers:"

/**
 * @param {string} error
 * @param {(option: string) => string | undefined} label of the option's field
 */
export const inPage = (error, label) => error
  .replace(/^argument --([\w-]+)(?:\/--[\w-]+)*: /, (_, option) => `${label(option) ?? option}: `)
  .replace(/ \(all options: .*\)$/, "")
  .replace(/ All names: dryrun gpus$/, " The list under GPU has all names.")
  .replace(/ The memory of a step is traced without a GPU.*/, "")
  .replace(/^gpu='([^']*)'/, "GPU “$1”")
  .replace(/^model '([^']*)'/, "Model “$1”")
  .replace("by `dryrun infer`", "by the task “Run it”")
  .replace(" is not in dryrun/data/accelerators.json", " is not known")
  .replace(/^length=(\d+)/, (_, tokens) => `${label("length") ?? "length"}: ${number(Number(tokens))}`)
  .replace(/^prompt \+ new=(\d+)/, (_, tokens) => `Prompt and answer: ${number(Number(tokens))} tokens`)
  .replace(NO_PROFILE, NO_TRACE)
  .replace("gpus_per_node (--gpus-per-node of the command)", "“GPUs in a node”")
  .replace(/ Or give a config\.json\.$/, OF_SIZES)
