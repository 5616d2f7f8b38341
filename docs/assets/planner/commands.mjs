// Below an answer: the command that asks the same, the program that runs it, and where to read on.
import { make } from "../shared/dom.mjs"
import { FORMATS } from "./changes.mjs"
import { hasPlan, plan, typed, whole } from "./command.mjs"
import { address, to, toCopy } from "./parts.mjs"
import { ARGUMENTS, argument, hubName, missing, program, runnable, unable } from "./program.mjs"

/** @import { Part } from "../shared/dom.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { Shown } from "./types.js" */

/** @type {Record<string, [string, string]>} */
const GUIDES = {
  lora: ["LoRA", "training/adapters-and-offload/#lora"], qlora: ["QLoRA", "training/qlora/#qlora"],
  full: ["Training on one GPU", "training/one-gpu/"], many: ["Training on many GPUs", "training/many-gpus/"],
  dpo: ["DPO and GRPO", "training/post-training/"], infer: ["Servers", "inference/servers/"]
}
/** @type {Record<string, string>} Where a program of one's own gets it from. */
const EXPLAINED = { "fused loss": "training/loss/#chunked-loss", "torch.compile": "training/throughput/#torch-compile" }

/** @param {Question} question The recipe, with the figures of this GPU, where it has some. */
const recipe = question => {
  const link = new URL(address(question.full ? "recipes/14b-on-8-gpus/" : "recipes/8b-on-24gb/"))
  link.searchParams.set("gpu", question.gpu?.name ?? "")
  return make("a", { href: link.href }, "the recipe")
}

/** @param {Question} question Where to begin, where no program takes all values of the question. */
const beginning = question => {
  if (question.full) {
    const [text, place] = question.many
      ? ["a loop of your own", "training/own-loop/"] : ["training on one GPU", "training/one-gpu/"]
    return to(text, place)
  }
  if (!question.many) return recipe(question)
  return question.text("strategy") === "ddp"
    ? to("data-parallel training", "training/data-parallel/") : to("a model larger than each GPU", "training/sharding/")
}

/** @param {Shown} shown What the command that trains lacks, and where that stands. @returns {Part} */
const lacking = shown => {
  const { question } = shown, found = runnable(shown)
  if (!found || question.infer) return undefined
  const options = missing(question), gone = options.filter(name => !argument(question, name))
  if (question.objective !== "sft") {
    const isDpo = question.objective === "dpo"
    return ["The program: ", isDpo
      ? to("DPO with TRL", "training/post-training/#dpo") : to("GRPO with TRL", "training/grpo/#grpo"), "."]
  }
  if (found.fp16 && !question.full) {
    const link = to("fine-tune a chat model on a free T4", "notebooks/recipes/finetune_chat_model/")
    return ["The programs of the recipes compute in bf16. For a GPU without it: ", link, "."]
  }
  const cannot = unable(shown, found.gpu)
  if (cannot.length) {
    const why = [...cannot, ...gone.map(name => `it has no option for ${name}`)].join("; ")
    return [`No program takes all values of this question: ${why}. Begin with: `, beginning(question), "."]
  }
  if (gone.length) {
    const links = gone.filter(name => Object.hasOwn(EXPLAINED, name))
      .map(name => [" How to add it: ", to(name, EXPLAINED[name]), "."])
    return ["The program of ", recipe(question), ` has no option for ${gone.join(", ")}.`, links]
  }
  const added = options.filter(name => argument(question, name)).map(name =>
    `${ARGUMENTS[name]} (${name}${name === "fused loss" ? ", after pip install liger-kernel" : ""})`)
  return added.length ? `Add to its TrainingArguments: ${added.join(", ")}.` : undefined
}

/** @param {Shown} shown @param {string} file Where such a checkpoint is, and how long a request may be. */
const ofServer = (shown, file) => {
  const [, name] = hubName(shown)?.split("/") ?? [], length = /--max-model-len|--ctx-size/.exec(file)?.[0]
  const format = /: (\w+)/.exec(FORMATS[shown.question.text("weights")])?.[1] ?? ""
  const words = new URLSearchParams({ search: `${name} ${file.includes(".gguf") ? "GGUF" : format}`.trim() })
  const link = make("a", { href: `https://huggingface.co/models?${words}` }, "Look for it on the Hub")
  return make("p", {}, file.includes("MODEL") && name && [link, ". "], length && [make("code", {}, length),
    " is the room of prompt and answer: longer requests need more, up to the longest context above."])
}

/** @param {Question} question @param {string} file @returns {Part} */
const introduction = (question, file) => {
  if (question.train) return ["By the program of ", recipe(question), ":"]
  if (!file.includes("MODEL")) return "With the model's name on the Hub:"
  const format = `${FORMATS[question.text("weights")]}${file.includes(".gguf") ? ", a GGUF file" : ""}`
  return `With a checkpoint of it in this format for MODEL (${format}):`
}

/** @param {Shown} shown The commands of the question, with or without an answer. */
export const commands = shown => {
  const { question } = shown, file = program(shown), rest = lacking(shown)
  const lines = [typed(whole(question)), ...(hasPlan(question) ? [typed(plan(question))] : [])]
  return make("div", {},
    make("h2", {}, "The same question on your machine"),
    make("p", {}, "The command ", to("dryrun", "dryrun/"),
      question.infer ? " predicts, and runs no model:" : " predicts, and trains nothing:"),
    toCopy(lines.join("\n")),
    (file || rest) && make("h2", {}, question.infer ? "To run it" : "To train"),
    file && [make("p", {}, introduction(question, file)), toCopy(file), question.infer && ofServer(shown, file)],
    rest && make("p", {}, rest))
}

/** @param {Question} question */
export const next = question => {
  const keys = question.infer ? ["infer"]
    : [question.objective === "sft" ? "" : "dpo", question.many ? "many" : "", question.task].filter(Boolean)
  const links = keys.map((key, number) => [number ? ", " : "", to(...GUIDES[key])])
  return make("p", {}, "More: ", links, ".")
}
