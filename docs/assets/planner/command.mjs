// The command that asks the same question: dryrun's own arguments, and what they mean.

/** @import { Question } from "./question.mjs" */

/** @type {Record<string, string>} What the command takes where an option is missing: these need not be typed. */
export const DEFAULTS = {
  gpus: "1", "gpus-per-node": "8", rank: "16", length: "2048", batch: "1", accumulation: "1", objective: "sft",
  dtype: "bf16", optimizer: "adamw", strategy: "fsdp2", epochs: "1", prompt: "1024", new: "256", weights: "published"
}
const SWITCHES = ["checkpointing", "fused-loss", "compile"]

/** @param {Question} question @param {string[]} names of options that are fields of the form, too */
const options = (question, ...names) => names
  .filter(name => question.asks(name) && question.text(name) && question.text(name) !== DEFAULTS[name])
  .flatMap(name => [`--${name}`, question.text(name)])

/** @param {Question} question */
const begin = question => [
  question.text("model").trim() || " ", "--gpu", question.gpu?.name ?? (question.text("gpu").trim() || " ")
]

/** @param {Question} question */
const step = question => [
  ...begin(question), ...options(question, "gpus", "gpus-per-node", "network"),
  ...(question.full ? [] : [`--${question.task}`, ...options(question, "rank").slice(1)]),
  ...options(question, "objective"), ...(question.grpo ? ["--new", question.text("written")] : []),
  ...options(question, "length", "batch", "accumulation", "dtype", "optimizer", "ran"),
  ...SWITCHES.filter(name => question.on(name)).map(name => `--${name}`)
]

/** @param {Question} question */
const generation = question => {
  const users = question.text("users")
  return [
    ...begin(question), ...options(question, "gpus", "memory", "prompt", "new"),
    ...(users && users !== "1" ? ["--batch", users] : []), ...options(question, "weights", "price")
  ]
}

/** @param {Question} question How much data there is, where that was said. */
export const amount = question => question.infer ? [] : options(question, "rows", "tokens")

/** @param {Question} question Whether epochs or a price were given that count nothing without an amount of data. */
export const waitsForData = question =>
  question.train && !amount(question).length && options(question, "epochs", "price").length > 0

/**
 * @param {Question} question
 * @param {string[]} more The step or the generation alone, as a row of the table asks it.
 */
export const short = (question, more = []) => question.infer
  ? ["infer", ...generation(question)]
  : ["train", ...step(question), ...options(question, "strategy"), ...more]

/** @param {Question} question All that is asked, as words of the command. */
export const whole = question => {
  const data = amount(question)
  return short(question, [
    ...(data.length ? [...data, ...options(question, "epochs", "price")] : []),
    ...(question.train && !question.grpo ? ["--largest-batch"] : [])
  ])
}

/** @param {Question} question Which strategy is the best. */
export const plan = question => ["plan", ...step(question), ...options(question, "host-memory")]

/** @param {Question} question Whether it has strategies to choose from. */
export const hasPlan = question => question.many && !question.grpo

/** @param {string[]} words The line for a shell. Quoted, because the values may come from anybody's address. */
export const typed = words => ["dryrun", ...words]
  .map(word => /[^\w./:=@%+,-]/.test(word) ? `'${word.replaceAll("'", "'\\''")}'` : word).join(" ")

const OF_TRAINING = ["gpus", "length", "batch"], OF_GENERATION = ["gpus", "prompt", "new", "batch", "weights"]

/** @param {string[]} words What a command asks, whatever it leaves to its defaults and in whatever order. */
export const meaning = words => {
  const [verb, model, ...rest] = words
  const found = { verb, model, ...Object.fromEntries(
    (verb === "infer" ? OF_GENERATION : OF_TRAINING).map(name => [name, DEFAULTS[name]])) }
  /** @type {Record<string, string>} */
  const given = {}
  for (let at = 0; at < rest.length; at++) {
    const name = rest[at].slice(2), hasValue = at + 1 < rest.length && !rest[at + 1].startsWith("--")
    const value = hasValue ? rest[at += 1] : name.endsWith("lora") ? DEFAULTS.rank : ""
    if (name !== "largest-batch") given[name] = value
  }
  return JSON.stringify(Object.entries({ ...found, ...given }).sort())
}
