// The program of a recipe or a server with the values of the question, where it runs what was asked.
import { DEFAULTS } from "./command.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Serving, Shown, Training } from "./types.js" */

// Conversations of an update where no accumulation is named: as the programs have it.
const UPDATE = { one: 16, many: 64 }
const CHAT = /instruct|chat|-it$|qwen3|smollm3|phi-4|gpt-oss/i // the recipes read conversations: these have a template
const WITHOUT_BF16 = ["pascal", "volta", "turing"] // the recipes compute in bf16
/** @type {Record<string, string>} Of Trainer, which the recipe for one GPU uses. */
export const ARGUMENTS = { "fused loss": "use_liger_kernel=True", "torch.compile": "torch_compile=True" }

/** @param {Shown} shown @returns {Training | Serving | undefined} what fits and can be run */
export const runnable = ({ train, infer }) => {
  const found = train ?? infer
  return found && !("error" in found) && found.fit !== "no" ? found : undefined
}

/** @param {Shown} shown The model's name on the Hub. */
export const hubName = ({ question, known }) =>
  question.offered.models.find(one => one.name === known)?.hub || undefined

/** @param {Question} question @param {string} name What turns on an option of the question in the recipe's program. */
export const argument = (question, name) => question.full ? undefined : ARGUMENTS[name]

/** @param {(string | false | undefined)[]} reasons Those that hold. @returns {string[]} */
const saidOf = (...reasons) => reasons.filter(one => typeof one === "string")

/** @param {Question} question What of it the recipe's program has no option for. */
export const missing = question => {
  const objective = question.objective, optimizer = question.text("optimizer"), rank = question.text("rank")
  return saidOf(
    objective !== "sft" && objective.toUpperCase(),
    !question.on("checkpointing") && "no checkpointing",
    question.on("fused-loss") && "fused loss",
    question.on("compile") && "torch.compile",
    optimizer !== DEFAULTS.optimizer && `the optimizer ${optimizer}`,
    !question.full && rank !== DEFAULTS.rank && `rank ${rank}`
  )
}

/** @param {Question} question Why the recipe for adapters cannot run it. */
const unableOfAdapters = question => saidOf(
  question.many && "the recipe for adapters takes one GPU",
  question.count("batch") > 1 && "the recipe for adapters takes one sequence at once: accumulate instead"
)

/** @param {Question} question Why the recipe for all weights cannot run it. */
const unableOfAll = question => saidOf(
  !question.many && "the recipe for all weights takes several GPUs",
  question.nodes && "the recipe takes one node",
  question.text("dtype") !== "mixed" && "the recipe keeps fp32 weights",
  question.text("strategy") !== DEFAULTS.strategy && "the recipe takes FSDP2"
)

/** @param {Shown} shown @param {string} gpu Why the recipe's program cannot run what was asked. */
export const unable = (shown, gpu) => {
  const { question } = shown, hub = hubName(shown)
  const family = question.offered.gpus.find(one => one.name === gpu)?.family ?? ""
  return [
    ...saidOf(
      !hub && "its model is not on the Hub by a name that is known here",
      hub && !CHAT.test(hub) && "the recipes read conversations, and this model has no template for them"),
    ...(question.full ? unableOfAll(question) : unableOfAdapters(question)),
    ...saidOf(WITHOUT_BF16.includes(family) && "the recipes compute in bf16")
  ]
}

/** @param {Question} question @param {string} hub */
const recipe = (question, hub) => {
  const length = question.text("length") || DEFAULTS.length, epochs = question.count("epochs") || 1
  const atOnce = question.count("batch") || 1, accumulation = question.count("accumulation") || 1
  const common = `--model ${hub} --data conversations.jsonl`
  if (!question.full) {
    const bits = question.task === "qlora" ? 4 : 16, batch = accumulation > 1 ? accumulation : UPDATE.one
    return `python finetune_8b.py ${common} --bits ${bits} --length ${length} --batch ${batch} --epochs ${epochs}`
  }
  const gpus = question.text("gpus"), each = atOnce * Number(gpus)
  const batch = each * (accumulation > 1 ? accumulation : Math.max(1, Math.round(UPDATE.many / each)))
  return `torchrun --nproc-per-node ${gpus} finetune_14b.py ${common} --length ${length} --batch ${batch} ` +
    `--micro-batch ${atOnce} --epochs ${Math.ceil(epochs)}`
}

/** @param {Shown} shown The line that runs it; "" where no program runs what was asked. */
export const program = shown => {
  const { question } = shown, found = runnable(shown), hub = hubName(shown)
  if (!hub || !found) return ""
  if ("server" in found) {
    const weights = question.text("weights"), isIn16 = weights === "bf16" && !found.stored_in
    const isOwn = weights === DEFAULTS.weights || isIn16 // the checkpoint of the model's own publisher
    const needsFile = found.server.includes(".gguf") || !isOwn
    return needsFile ? found.server : found.server.replace("MODEL", hub)
  }
  if (missing(question).some(name => !argument(question, name)) || unable(shown, found.gpu).length) return ""
  return recipe(question, hub)
}
