// What the tests share: the form as docs/your-model.md has it, lists as planner/choices.json has them, random choices.
import { readFileSync } from "node:fs"
import { questionOf } from "../../docs/assets/planner/question.mjs"

const TAG = /<(\/?)(\w+)((?:\s+[\w-]+(?:="[^"]*")?)*)\s*>/g
const VOID = ["input", "br"]

/** The fields of the form, in its order, with their own values and what a list offers: a form without a browser. */
const read = () => {
  const [form] = readFileSync(new URL("../../docs/your-model.md", import.meta.url), "utf8").match(/<form[\s\S]*<\/form>/)
  const fields = [], groups = []
  let select
  for (const [, closes, tag, text] of form.matchAll(TAG)) {
    const attributes = Object.fromEntries([...text.matchAll(/([\w-]+)(?:="([^"]*)")?/g)].map(([, name, value]) => [name, value]))
    if (closes) {
      groups.pop()
      continue
    }
    const inside = groups.filter(Boolean)
    if (!VOID.includes(tag)) groups.push(attributes["data-for-task"])
    if (tag === "option" && select) {
      select.options.push(attributes.value)
      select.start ||= attributes.value
    }
    if (!attributes.name) continue
    const checkbox = attributes.type === "checkbox"
    const start = checkbox ? "checked" in attributes : attributes.value ?? ""
    const field = { name: attributes.name, checkbox, start, groups: inside, number: attributes.type === "number" }
    if (tag === "select") field.options = []
    select = field.options && field
    fields.push(field)
  }
  for (const [name, options] of [["weights", offered.weights], ["network", ["", ...offered.networks]]]) {
    const field = fields.find(one => one.name === name)
    field.options = options
    field.start = options[0]
  }
  return fields
}

const gpu = (name, label, family, gib, trains = true) => ({ name, label, family, gib, trains })
const model = (name, billions, positions, hub = "") => ({ name, parameters: billions * 1e9, positions, hub })

export const offered = {
  gpus: [
    gpu("v100-sxm2-32", "V100 32GB", "volta", 32), gpu("t4", "T4 16GB", "turing", 16),
    gpu("rtx-3060-12", "RTX 3060 12GB", "ampere", 12), gpu("rtx-3090", "RTX 3090 24GB", "ampere", 24),
    gpu("rtx-4090", "RTX 4090 24GB", "ada", 24), gpu("rtx-5090", "RTX 5090 32GB", "blackwell", 32),
    gpu("l4", "L4 24GB", "ada", 24), gpu("a100-sxm4-40", "A100 40GB", "ampere", 40),
    gpu("a100-sxm4-80", "A100 80GB", "ampere", 80), gpu("h100-sxm5", "H100 80GB", "hopper", 80),
    gpu("m4-max", "M4 Max 128GB", "apple", 128, false), gpu("m3-ultra", "M3 Ultra 512GB", "apple", 512, false)
  ],
  models: [
    model("llama3-8b", 8.03, 131072, "meta-llama/Llama-3.1-8B"), model("llama3-70b", 70.6, 131072),
    model("qwen2.5-7b", 7.6, 32768), model("qwen3-8b", 8.19, 40960, "Qwen/Qwen3-8B"),
    model("qwen3-14b", 14.8, 40960, "Qwen/Qwen3-14B"), model("qwen3-32b", 32.8, 40960, "Qwen/Qwen3-32B")
  ],
  memory: [model("gpt-oss-20b", 20.9, 131072), model("deepseek-v3", 671, 163840), model("gemma-3-27b", 27, 131072)],
  families: ["llama", "qwen3"],
  spellings: {
    gpus: {
      a100: "a100-sxm4-80", a10080gb: "a100-sxm4-80", a10040gb: "a100-sxm4-40", v100: "v100-sxm2-32", t4: "t4", l4: "l4",
      rtx3060: "rtx-3060-12", 3060: "rtx-3060-12", rtx3090: "rtx-3090", 3090: "rtx-3090", rtx4090: "rtx-4090",
      4090: "rtx-4090", rtx5090: "rtx-5090", 5090: "rtx-5090", h100: "h100-sxm5", h100sxm5: "h100-sxm5",
      m4max: "m4-max", m4max128gb: "m4-max", m3ultra: "m3-ultra"
    },
    models: {
      llama38b: "llama3-8b", "llama3.18b": "llama3-8b", llama370b: "llama3-70b", "qwen2.57b": "qwen2.5-7b",
      qwen38b: "qwen3-8b", qwen314b: "qwen3-14b", qwen332b: "qwen3-32b"
    }
  },
  weights: ["published", "bf16", "fp8", "int4-128", "q4_k_m"],
  networks: ["100 GbE", "InfiniBand NDR"]
}

export const fields = read()

/** The form's own values, but for some. */
export const values = (changed = {}) => ({
  ...Object.fromEntries(fields.map(({ name, start }) => [name, start])), ...changed
})

/** The question of a form in which some values were changed. */
export const question = (changed = {}) => questionOf(values(changed), fields, offered)

/** Whether a field can have a value, as a browser decides. */
export const takes = (name, value) => {
  const { options, number } = fields.find(one => one.name === name)
  return options ? options.includes(value) : !number || value !== "" && Number.isFinite(Number(value))
}

/** Numbers from 0 to 1, the same in each run. */
export const randoms = seed => {
  let state = seed
  return () => {
    state = state * 48271 % 2147483647
    return state / 2147483647
  }
}
