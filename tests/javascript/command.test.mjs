import assert from "node:assert/strict"
import { execFileSync } from "node:child_process"
import { test } from "node:test"
import { hasPlan, meaning, plan, short, typed, waitsForData, whole } from "../../docs/assets/planner/command.mjs"
import { questions } from "../../docs/assets/planner/comparison.mjs"
import { firstOf, sameQuestion } from "../../docs/assets/planner/stored.mjs"
import { inWords, parsedSizes } from "../../docs/assets/planner/sizes.mjs"
import { question } from "./page.mjs"

const line = changed => whole(question(changed)).join(" ")

test("the form as it is asks for LoRA with what the form turns on", () => {
  assert.equal(line(), "train qwen3-8b --gpu rtx-4090 --lora --checkpointing --largest-batch")
})

test("defaults of the command are not typed, and an empty field is a default", () => {
  assert.equal(line({ length: "", batch: "1", rank: "16", optimizer: "adamw" }), line())
  assert.match(line({ length: "4096", rank: "32" }), /--lora 32 --length 4096/)
})

test("only options of the task are typed", () => {
  const command = line({ task: "infer", length: "4096", rank: "32", "fused-loss": true, users: "4", weights: "fp8" })
  assert.equal(command, "infer qwen3-8b --gpu rtx-4090 --batch 4 --weights fp8")
})

test("a GPU in any spelling is typed by its name, and an unknown one as it is", () => {
  assert.match(line({ gpu: "A100" }), /--gpu a100-sxm4-80 /)
  assert.deepEqual(whole(question({ gpu: " h300 ", model: "" })).slice(1, 4), [" ", "--gpu", "h300"])
})

test("all weights on several GPUs have a strategy, a network between nodes, and a plan", () => {
  const asked = question({ task: "full", gpu: "h100", gpus: "16", network: "100 GbE", strategy: "zero2", "host-memory": "512" })
  assert.equal(whole(asked).join(" "), "train qwen3-8b --gpu h100-sxm5 --gpus 16 --network 100 GbE --dtype mixed " +
    "--checkpointing --strategy zero2 --largest-batch")
  assert.ok(hasPlan(asked))
  assert.match(plan(asked).join(" "), /^plan .*--host-memory 512$/)
  assert.ok(!hasPlan(question({ gpus: "1" })))
})

test("rewards have the tokens that the model writes, and neither a largest batch nor a plan", () => {
  const asked = question({ objective: "grpo", gpus: "2", batch: "8" })
  assert.equal(whole(asked).join(" "), "train qwen3-8b --gpu rtx-4090 --gpus 2 --lora --objective grpo --new 1024 --batch 8 --checkpointing")
  assert.ok(!hasPlan(asked))
})

test("epochs and a price count once there is an amount of data", () => {
  assert.ok(!line({ epochs: "3", price: "2" }).includes("--price") && waitsForData(question({ epochs: "3" })))
  assert.match(line({ epochs: "3", price: "2", rows: "1000" }), /--rows 1000 --epochs 3 --price 2/)
})

test("a line for a shell means the same words there, whatever an address brought", () => {
  for (const word of ["$(id)", "'; id; '", "a b", "`id`", "é", "x\"y", "100 GbE", "llama:layers=4,hidden=64", "\\", "*"]) {
    const said = execFileSync("sh", ["-c", typed([word]).replace("dryrun", "printf %s")], { encoding: "utf8" })
    assert.equal(said, word)
  }
  assert.equal(typed(["train", "qwen3-8b"]), "dryrun train qwen3-8b")
})

test("commands mean the same in any order and with their defaults said", () => {
  const same = [
    "train qwen3-8b --gpu h100-sxm5 --lora --checkpointing", "train qwen3-8b --lora 16 --gpu h100-sxm5 --gpus 1 --checkpointing",
    "train qwen3-8b --gpu h100-sxm5 --length 2048 --checkpointing --lora --batch 1 --largest-batch"
  ]
  assert.equal(new Set(same.map(words => meaning(words.split(" ")))).size, 1)
  for (const other of ["--lora 8", "--qlora", "--lora --batch 2", "--lora --gpus 2"]) {
    assert.notEqual(meaning(`train qwen3-8b --gpu h100-sxm5 --checkpointing ${other}`.split(" ")), meaning(same[0].split(" ")), other)
  }
})

test("an answer of the site is that of the same question, and no error", () => {
  const stored = [
    { command: "dryrun infer qwen3-8b --gpu l4 --prompt 1024 --new 256 --batch 1 --weights bf16", error: "no" },
    { command: "dryrun infer qwen3-8b --gpu l4 --prompt 1024 --new 256 --batch 8 --weights int8" }
  ]
  assert.equal(sameQuestion(stored, whole(question({ task: "infer", gpu: "l4", users: "8", weights: "int8" }))), stored[1])
  assert.equal(sameQuestion(stored, whole(question({ task: "infer", gpu: "l4" }))), undefined)
  const first = { asked: whole(question()), model: {}, answer: {} }
  assert.equal(firstOf([first], question()), first)
  assert.equal(firstOf([first], question({ gpu: "l4" })), undefined)
})

test("a table asks about each GPU that can train, or each model, the rest as it is", () => {
  const lines = questions(question({ memory: "64", ran: "one:1.13" }), "gpu").map(words => words.join(" "))
  assert.ok(lines.every(one => !one.includes("--ran")), "what ran on one GPU says nothing of others")
  assert.ok(lines.includes("train qwen3-8b --gpu t4 --lora --checkpointing") && !lines.some(one => one.includes("m4-max")))
  const ofModels = questions(question({ task: "infer", gpu: "m4-max", memory: "64" }), "model").map(words => words.join(" "))
  assert.ok(ofModels.includes("infer llama3-70b --gpu m4-max --memory 64"))
  const ofGpus = questions(question({ task: "infer", gpu: "m4-max", memory: "64" }), "gpu").map(words => words.join(" "))
  assert.ok(ofGpus.includes("infer qwen3-8b --gpu m3-ultra"), "the memory was that of the other machine")
  assert.deepEqual(short(question({ task: "infer" })), ["infer", "qwen3-8b", "--gpu", "rtx-4090"])
})

test("the sizes of a model are the same words after they stood in fields", () => {
  for (const words of ["llama:layers=24,hidden=2048,heads=16", "qwen3:layers=4,tied", "phi3:"]) assert.equal(inWords(parsedSizes(words)), words)
  const { kind, sizes, tied } = parsedSizes("llama:layers=24,hidden=2048,tied")
  assert.deepEqual([kind, [...sizes], tied], ["llama", [["layers", "24"], ["hidden", "2048"]], true])
  assert.equal(inWords({ kind: "llama", sizes: new Map([["layers", "2"], ["hidden", ""]]), tied: false }), "llama:layers=2")
})
