// A question that names a model, or asks about memory, time or money, is one for the page your-model: what to ask
// there.
import { plain } from "../planner/names.mjs"
import { details } from "./details.mjs"
import { SIZE, cardOf, named, ofSize, wordsOf } from "./names.mjs"

/** @import { Gpu, Model, Offered } from "../planner/types.js" */
/** @import { Asked } from "./details.mjs" */
/** @import { Card } from "./names.mjs" */

/** Words of such a question, beside the name of a model or a GPU. */
const ASKED = new RegExp([
  String.raw`\b(fit|fits|vram|memory|gib|gb|ram|train|training|pretrain|fine[- ]?tun\w*|rent|cheap\w*|lora|qlora|dpo`,
  "grpo|fast|speed|tokens|tps|long|hours|days|cost|price|run|inference|serve", String.raw`llms?)\b`
].join("|"), "i")
/** A question without a name leads to the form as it is. */
const QUANTITY = new RegExp([
  String.raw`\b(calculator|estimator|(which|what|cheapest|best) gpus?|gpus? (for|to|do i need)`,
  String.raw`how (much|many) (vram|memory|ram|gpus|gpu memory)`,
  String.raw`(can|could) i (run|train|fine[- ]?tune)`, String.raw`(will|does) it fit`,
  String.raw`how (long|many (hours|days))\b.*\b(pre-?train|train|fine[- ]?tun)\w*`,
  String.raw`costs? (of|to) (train|pretrain|serv|fine|run)\w*)\b`
].join("|"), "i")
/** @type {[string, RegExp][]} */
const TASKS = [
  ["qlora", /\bqlora\b/i], ["full", /\b(full|pre-?train\w*|scratch)\b/i],
  ["lora", /\b(lora|fine[- ]?tun\w*|sft|dpo|grpo)\b/i], ["full", /\btrain\w*/i], ["infer", /./]
]
/** @type {[string, RegExp][]} */
const WEIGHTS = [
  ["q4_k_m", /\b(q4|gguf|ollama|llama\.cpp)/i], ["int4-128", /\b(4[- ]?bits?|int4|awq|gptq)\b/i],
  ["fp8", /\b(fp8|8[- ]?bits?)\b/i]
]
// Not in the form, unless a list has the very model.
const UNLISTED = /\b(deepseek|gpt-?oss|kimi|glm|minimax|gemma[- ]?[34]|llama[- ]?4|qwen3[.-](5|next))/i
const OFFLOADED = /\b(offload\w*|on (a |the |my )?cpus?)\b/i // weights on the host are no question of the form
const SMALL = 16, FITS_SMALL = 6e9 // GiB of a GPU, and parameters whose 16 bits leave it no room
const LARGE = 30e9 // parameters: one card for gamers holds no such model
const LONGEST = 120 // characters: more is a message
const LARGEST = 200e9 // parameters that two H100s hold in 4 bits, and no more
/** @type {Record<string, number>} H100s that a large model takes; all its weights take eight. */
const NEEDED = { infer: 2, qlora: 1 }
const ON_MACS = "q4_k_m" // what is usually run where CPU and GPU share one memory

/** @param {string} query Whether it may be such a question: the names of models and GPUs have digits. */
export const mayAsk = query => (QUANTITY.test(query) || /\d/.test(query)) && query.length <= LONGEST

/** @param {string} query @param {Model | undefined} model @param {Gpu | undefined} gpu */
const taskOf = (query, model, gpu) => {
  if (gpu && !gpu.trains) return "infer"
  const said = TASKS.find(([, pattern]) => pattern.test(query))?.[0] ?? "infer"
  if (said !== "lora" || /\b(lora|dpo|grpo)\b/i.test(query) || !model || !gpu) return said
  return gpu.gib <= SMALL && model.parameters > FITS_SMALL ? "qlora" : said
}

/** @param {string} task @param {Model | undefined} model @param {Card | undefined} card Which GPU, and how many. */
const needed = (task, model, card) => {
  if (card) return { gpu: card.name, gpus: card.many }
  if (!model || model.parameters <= LARGE) return { gpu: "", gpus: 1 }
  return { gpu: "h100-sxm5", gpus: model.parameters > LARGEST ? 8 : NEEDED[task] ?? 8 }
}

/** @param {string} query @param {string[]} words Whether it is about a model that the form does not have. */
const isOfAnother = (query, words) =>
  UNLISTED.test(query) || words.some((word, at) => SIZE.test(word) && words[at + 1] !== "tokens")

/** @param {string} query @param {string} task Training has no such field. */
const weightsOf = (query, task) => task === "infer" ? WEIGHTS.find(([, pattern]) => pattern.test(query))?.[0] : ""

/** @param {string} query @param {string} task @param {Gpu | undefined} gpu @returns {Asked} */
const ofWeights = (query, task, gpu) => {
  const asked = weightsOf(query, task)
  if (gpu?.trains !== false) return [["weights", asked]]
  return [["weights", asked || ON_MACS], ["memory", query.match(/\b(\d{1,3}) ?gb\b/i)?.[1]]]
}

/** @param {{name: string, as?: string} | undefined} model @param {Card | undefined} card */
const calledOf = (model, card) => {
  const on = card && `${card.many > 1 ? `${card.many} x ` : ""}${card.name}${card.other ? ` or ${card.other}` : ""}`
  const called = [model?.as ?? model?.name, on].filter(Boolean).join(" on ").replace(/,$/, "")
  return called || "Your model on your GPUs"
}

/**
 * The model of a question: undefined where there is none, null where the question is none for the page.
 * @param {string} query @param {string[]} words @param {Card | undefined} card @param {Offered} offered
 * @returns {{name: string, as?: string} | undefined | null}
 */
const modelOf = (query, words, card, { models, memory, spellings }) => {
  const isAsked = ASKED.test(query), ofMemory = Object.fromEntries(memory.map(({ name }) => [plain(name), name]))
  const model = named(spellings.models, words) ?? named(ofMemory, words) ??
    (card || isAsked ? ofSize(models, words) : undefined)
  if (model) return model
  const isQuestion = QUANTITY.test(query) || card && isAsked
  return isQuestion && !isOfAnother(query, words) ? undefined : null
}

/**
 * What the page your-model is asked, and how the link is called; undefined where the question is none for it.
 * @param {string} query @param {Offered} offered
 * @returns {{asked: [string, string][], called: string} | undefined}
 */
export const planned = (query, offered) => {
  const { models, memory, gpus, spellings } = offered
  const words = wordsOf(query, spellings.gpus), card = cardOf(query, words, spellings.gpus)
  const model = modelOf(query, words, card, offered)
  if (model === null) return undefined
  const known = [...models, ...memory].find(one => one.name === model?.name)
  const on = gpus.find(one => one.name === card?.name)
  const task = taskOf(query, known, on), { gpu, gpus: many } = needed(task, known, card)
  if (task === "infer" ? OFFLOADED.test(query) : known && memory.includes(known)) return undefined
  /** @type {Asked} */
  const asked = [
    ["task", task], ["model", model?.name], ["gpu", gpu], ["gpus", many > 1 ? many : 0],
    ...ofWeights(query, task, on), ["table", card?.other ? "gpu" : ""], // both are rows of it
    ...details(query, task, known?.positions)
  ]
  return {
    asked: asked.filter(([, value]) => value).map(([name, value]) => [name, String(value)]),
    called: calledOf(model, card)
  }
}
