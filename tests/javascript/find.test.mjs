import assert from "node:assert/strict"
import { test } from "node:test"
import { details } from "../../docs/assets/find/details.mjs"
import { named } from "../../docs/assets/find/names.mjs"
import { mayAsk, planned } from "../../docs/assets/find/planner.mjs"
import { bestBets, better, guidesFirst, having, led, oldName, passage, putBack, summary } from "../../docs/assets/find/sections.mjs"
import { isAsked } from "../../docs/assets/ledger/claims.mjs"
import { matcher } from "../../docs/assets/filter/words.mjs"
import { beginning } from "../../docs/assets/shared/words.mjs"
import { offered } from "./page.mjs"

const address = query => mayAsk(query) && planned(query, offered) && `?${new URLSearchParams(planned(query, offered).asked)}`

const ASKED = {
  "lora qwen3 8b on a 4090": "?task=lora&model=qwen3-8b&gpu=rtx-4090",
  "how much vram for 70b": "?task=infer&model=llama3-70b&gpu=h100-sxm5&gpus=2",
  "dpo llama3-8b on an h100": "?task=lora&model=llama3-8b&gpu=h100-sxm5&objective=dpo",
  "lora of a 14b at 8,192 tokens": "?task=lora&model=qwen3-14b&length=8192",
  "llama3-8b on a100 for eight users": "?task=infer&model=llama3-8b&gpu=a100-sxm4-80&users=8",
  "llama3-8b 50 tokens/s on an l4": "?task=infer&model=llama3-8b&gpu=l4",
  "M4 Max local llm": "?task=infer&gpu=m4-max&weights=q4_k_m",
  "gpt-oss-20b on a 5090": "?task=infer&model=gpt-oss-20b&gpu=rtx-5090",
  "how many 4090s to run deepseek v3": "?task=infer&model=deepseek-v3&gpu=rtx-4090",
  "can i run deepseek v3": "?task=infer&model=deepseek-v3&gpu=h100-sxm5&gpus=8",
  "gemma 3 27b on M4 Max 64 GB": "?task=infer&model=gemma-3-27b&gpu=m4-max&weights=q4_k_m&memory=64",
  "qwen3 32b on 4 x RTX 5090": "?task=infer&model=qwen3-32b&gpu=rtx-5090&gpus=4",
  "qwen3 32b on 3090 x2": "?task=infer&model=qwen3-32b&gpu=rtx-3090&gpus=2",
  "full fine-tuning llama3-8b 8xh100": "?task=full&model=llama3-8b&gpu=h100-sxm5&gpus=8",
  "vram for 128k context llama 3 8b": "?task=infer&model=llama3-8b&prompt=130816",
  "can i run llama3-70b on two 3090s": "?task=infer&model=llama3-70b&gpu=rtx-3090&gpus=2",
  "can i run a 70b model on a 24gb card": "?task=infer&model=llama3-70b&gpu=rtx-4090",
  "cheapest gpu to rent to fine tune 8b": "?task=lora&model=qwen3-8b",
  "how long to pretrain on 100b tokens": "?task=full&tokens=100B",
  "vram calculator": "?task=infer",
  "is 12gb vram enough to finetune 7b": "?task=qlora&model=qwen2.5-7b&gpu=rtx-3060-12",
  "how long does it take to finetune qwen3 8b on 100k samples": "?task=lora&model=qwen3-8b&rows=100000",
  "rtx 4090 vs a100 for fine-tuning": "?task=lora&gpu=rtx-4090&table=gpu",
  "how much vram for qlora of a 32b": "?task=qlora&model=qwen3-32b&gpu=h100-sxm5",
  "qwen3 8b awq on a 3060": "?task=infer&model=qwen3-8b&gpu=rtx-3060-12&weights=int4-128",
  "qwen3 8b gguf on an m4 max": "?task=infer&model=qwen3-8b&gpu=m4-max&weights=q4_k_m"
}

test("a question about a model is asked on its page", () => {
  for (const [query, search] of Object.entries(ASKED)) assert.equal(address(query), search, query)
})

test("what is none, or about a model that the form does not have, is not", () => {
  for (const query of ["h100 vs a100", "CUDA error 700", "gemma 3 12b vram", "lora of gpt-oss-20b", "zero 3",
    "is 128gb enough for 120b tokens per second", "qwen3 8b cpu offload experts", `${"x ".repeat(70)}qwen3 8b`]) assert.ok(!address(query), query)
})

test("the link is called by the model and the GPU", () => {
  const called = query => planned(query, offered)?.called
  assert.equal(called("qwen3 8b on two 4090s"), "qwen3-8b on 2 x rtx-4090")
  assert.equal(called("how much vram for 70b"), "70B, such as llama3-70b")
  assert.equal(called("rtx 4090 vs a100 for fine-tuning"), "rtx-4090 or a100-sxm4-80")
  assert.equal(called("vram calculator"), "Your model on your GPUs")
})

test("the longest name among the words is taken, with what stands before it", () => {
  assert.deepEqual(named({ h100: "a", h100pcie: "b" }, ["8", "h100", "pcie"]), { name: "b", before: "8", at: 1, size: 2 })
  assert.equal(named({}, ["constructor", "toString"]), undefined)
})

test("tokens of all data have a unit, those of a sequence have none", () => {
  assert.deepEqual(details("20 billion tokens", "full"), [["tokens", "20B"]])
  assert.deepEqual(details("1.5 million tokens", "full"), [["tokens", "1.5M"]])
  assert.deepEqual(details("4096 tokens, 1,000 rows, grpo", "lora"), [["rows", 1000], ["objective", "grpo"], ["length", 4096]])
  assert.deepEqual(details("50 tokens per second", "full"), [])
  assert.deepEqual(details("32k context for 3 users", "infer", 16384), [["users", 3], ["prompt", 16128]])
})

const INDEX = { digits: [..."0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#", ..."$%&*+-/:;<=>"].join("") }

/** The index of some texts, as evidence/site/search_index.py writes it. */
const indexOf = texts => {
  const words = [...new Set(texts.flat())].sort(), more = INDEX.digits.length - 64
  const places = words.map(word => {
    let last = 0
    return texts.flatMap((text, place) => text.filter(one => one === word).map(() => {
      let step = place - last
      last = place
      let digits = INDEX.digits[step % 64]
      for (step = Math.floor(step / 64); step; step = Math.floor(step / more)) digits = INDEX.digits[64 + step % more] + digits
      return digits
    })).join("")
  })
  const ends = words.map((word, number) => {
    const before = words[number - 1] ?? ""
    let same = 0
    while (same < 9 && same < before.length && before[same] === word[same]) same++
    return `${same}${word.slice(same)}`
  })
  return { ...INDEX, docs: texts.map((_, place) => ({ location: String(place), title: "", text: "first" })), words: ends.join("\n"), places: places.join("\n") }
}

test("the words of sections are put back, as often as they stood there, also far behind", () => {
  const texts = [["zero", "zeros"], ["zeros"], ...Array(2000).fill([]), ["a", "a", "zero"]]
  const index = indexOf(texts)
  putBack(index)
  assert.deepEqual(index.docs.map(({ text }) => text), texts.map(words => `first\n${words.join(" ")}`))
})

test("a notebook comes right behind its guide", () => {
  const titles = { "guide/": "One GPU", "notebooks/one_gpu/": "One GPU", "other/": "Other", "notebooks/alone/": "Alone" }
  const order = (...pages) => guidesFirst(pages.map(location => [{ location: `${location}#a` }]), page => titles[page]).map(([best]) => best.location.split("#")[0])
  assert.deepEqual(order("notebooks/one_gpu/", "other/", "guide/"), ["other/", "guide/", "notebooks/one_gpu/"])
  assert.deepEqual(order("guide/", "other/", "notebooks/one_gpu/"), ["guide/", "other/", "notebooks/one_gpu/"])
  assert.deepEqual(order("notebooks/alone/", "other/"), ["notebooks/alone/", "other/"])
})

test("an old address is known by its last part", () => {
  for (const query of ["perf_train_gpu_one", "https://huggingface.co/docs/transformers/en/perf_train_gpu_one", " /docs/transformers/v4.1/perf_train_gpu_one.html ",
    "https://huggingface.co/docs/transformers/perf_train_gpu_one#batch-size", "perf_train_gpu_one.html?x=1#y", "perf_train_gpu_one/"]) assert.equal(oldName(query), "perf_train_gpu_one")
})

test("beginnings of words are found, and a point is one", () => {
  assert.equal(having("Training with bf16: train.", ["train", "bf", "rain"]), 2)
  assert.ok(beginning(["v0.1"]).test("v0.1") && !beginning(["v0.1"]).test("v0x1"))
})

test("the passage that has most of the words is shown round the first of them", () => {
  assert.equal(better("memory", ["nothing", "memory and speed", "speed and memory, too"], ["memory", "speed"]), "memory and speed")
  assert.equal(better("memory and speed", ["speed"], ["memory", "speed"]), "", "what is shown has more")
  const text = `${"word ".repeat(30)}memory ${"more ".repeat(60)}`, shown = passage(text, ["memory"])
  assert.ok(shown.startsWith("… word") && shown.includes("memory") && shown.length <= 202)
  assert.equal(passage("memory first", ["memory"]), "memory first")
})

test("what was found is counted, and a word in place of a typed one is said", () => {
  assert.equal(summary(1, {}), "1 page")
  assert.equal(summary(3, { memozy: "memory" }), "3 pages, with “memory” for “memozy”")
  assert.match(summary(0, {}), /^No page has these words/)
})

test("rows of a table have all words that are typed, whatever stands between letters and digits", () => {
  const row = "RTX 4090 24GB Ada"
  for (const typed of ["", "rtx", "4090 rtx", "rtx4090", "24 GB", "24gb", "rtx-4090"]) assert.ok(matcher(typed)(row), typed)
  for (const typed of ["3090", "rtx 3090", "24 TB"]) assert.ok(!matcher(typed)(row), typed)
})

test("claims are asked for by words, kind, machine, page and whether they apply", () => {
  const row = { claim: "memory of one gpu", value: "12 gib", kind: "measured", machine: "t4", pages: "training/one-gpu, training/rig" }
  const asked = more => isAsked(row, { words: "", kind: "", machine: "", page: "", value: "", ...more })
  for (const some of [{}, { words: "GPU memory" }, { kind: "measured" }, { machine: "T4" }, { page: "training/rig" }, { value: "yes" }]) assert.ok(asked(some), JSON.stringify(some))
  for (const some of [{ words: "cpu" }, { kind: "cited" }, { page: "training" }, { value: "no" }]) assert.ok(!asked(some), JSON.stringify(some))
  assert.ok(isAsked({ ...row, value: "does not apply: no gpu" }, { words: "", kind: "", machine: "", page: "", value: "no" }))
})

test("a best bet is asked by its words in any order, without those that every sentence has", () => {
  const bet = bestBets({ "training/one-gpu/": ["reduce vram"], "your-model/": ["does it fit"] }, ["how", "to", "my", "does", "it", "will"])
  for (const query of ["reduce vram", "VRAM, reduce!", "how to reduce my vram"]) assert.equal(bet(query), "training/one-gpu/", query)
  assert.equal(bet("will it fit"), "your-model/")
  for (const query of ["reduce vram on windows", "reduce", "", "how to"]) assert.equal(bet(query), undefined, query)
})

test("the section that answers goes before all others, with the rest of its page behind it", () => {
  const groups = [[{ location: "a/#x" }], [{ location: "b/#y" }, { location: "b/#z" }]]
  assert.deepEqual(led(groups, "b/#z"), [[{ location: "b/#z" }, { location: "b/#y" }], [{ location: "a/#x" }]])
  assert.deepEqual(led(groups, "c/"), [[{ location: "c/" }], ...groups])
  assert.equal(led(groups, undefined), groups)
})
