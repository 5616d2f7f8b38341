import assert from "node:assert/strict"
import { test } from "node:test"
import { gpuOf, modelOf, near, splitGpu } from "../../docs/assets/planner/names.mjs"
import { offered } from "./page.mjs"

const split = typed => splitGpu(offered, typed)

test("a GPU is known by its name, its label and any spelling, in any case", () => {
  for (const typed of ["rtx-4090", "RTX 4090", "rtx4090", "4090", "RTX 4090 24GB"]) assert.equal(gpuOf(offered, typed)?.name, "rtx-4090", typed)
  assert.equal(gpuOf(offered, "A100")?.name, "a100-sxm4-80", "the one that is sold most")
  for (const typed of ["", "h300", "constructor", "toString"]) assert.equal(gpuOf(offered, typed), undefined, typed)
})

test("a count before a GPU goes into its own field", () => {
  assert.deepEqual(split("4 x RTX 5090"), { gpu: "RTX 5090", gpus: "4" })
  assert.deepEqual(split("8xA100"), { gpu: "A100", gpus: "8" })
  assert.deepEqual(split("8 × h100"), { gpu: "h100", gpus: "8" })
  assert.deepEqual(split("16*L4"), { gpu: "L4", gpus: "16" })
})

test("also where the GPU's name begins with a digit", () => {
  assert.deepEqual(split("2 x 3090"), { gpu: "3090", gpus: "2" })
  assert.deepEqual(split("2x4090"), { gpu: "4090", gpus: "2" })
})

test("the memory of a Mac goes into its own field", () => {
  assert.deepEqual(split("M4 Max 64 GB"), { gpu: "M4 Max", memory: "64" })
  assert.deepEqual(split("MacBook M4 Max 64GB"), { gpu: "M4 Max", memory: "64" })
  assert.deepEqual(split("macbook pro m4 max 36gb"), { gpu: "m4 max", memory: "36" })
  assert.deepEqual(split("Mac Studio M3 Ultra 96GB"), { gpu: "M3 Ultra", memory: "96" })
})

test("a computer without its chip stays as it was typed", () => {
  for (const typed of ["MacBook", "MacBook Air", "Mac mini", "machine M4 Max"]) assert.deepEqual(split(typed), { gpu: typed })
})

test("a memory that is a part of the name stays there", () => {
  assert.deepEqual(split("M4 Max 128GB"), { gpu: "M4 Max 128GB" })
  assert.deepEqual(split("A100 40GB"), { gpu: "A100 40GB" })
  assert.deepEqual(split("RTX 4090 48GB"), { gpu: "RTX 4090 48GB" }, "a card that nobody sells is not asked for its memory")
})

test("what is not understood stays as it was typed", () => {
  for (const typed of ["", "8 x toaster", "99999 x A100", "x A100"]) assert.deepEqual(split(typed), { gpu: typed })
})

test("a model with files of answers is known by its name and by that on the Hub", () => {
  assert.equal(modelOf(offered, "Qwen/Qwen3-14B"), "qwen3-14b")
  assert.equal(modelOf(offered, "llama 3.1 8b"), "llama3-8b")
  assert.equal(modelOf(offered, "hasOwnProperty"), undefined)
})

test("an unknown name is offered those that share most with it", () => {
  const names = (text, all) => near(text, all).map(one => one.name)
  assert.deepEqual(names("llama3-9b", offered.models), ["llama3-8b", "llama3-70b"])
  assert.deepEqual(names("70B", offered.models), ["llama3-70b"])
  assert.deepEqual(names("qwen3-9b", offered.models), ["qwen3-8b", "qwen3-14b", "qwen3-32b"])
  assert.deepEqual(names("toaster", offered.models), [])
})

test("at most eight are offered", () => {
  const many = [...Array(20)].map((_, number) => ({ name: `llama-${number}` }))
  assert.equal(near("llama", many).length, 8)
})
