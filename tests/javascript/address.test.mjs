import assert from "node:assert/strict"
import { test } from "node:test"
import { read, readTable, withTable, write } from "../../docs/assets/planner/address.mjs"
import { fields, offered, question, randoms, takes, values } from "./page.mjs"

const TYPED = ["1", "2", "8", "64", "1024"]
const TEXTS = {
  model: ["llama3-8b", "Qwen/Qwen3-14B", "llama:layers=4,hidden=64,tied", "a b&c=d#e%+é"], gpu: ["rtx-4090", "m4-max", "8 x A100"],
  tokens: ["20M", "1e9"], price: ["1.4"], measured: ["22 %", "2000"]
}

/** Values that a reader could have chosen. */
const chosen = random => {
  const pick = some => some[Math.floor(random() * some.length)]
  return values(Object.fromEntries(fields.filter(() => random() < .5).map(({ name, checkbox, options }) =>
    [name, checkbox ? random() < .5 : pick(options ?? TEXTS[name] ?? TYPED)])))
}

test("an address brings back the question that made it, for any values", () => {
  const random = randoms(1)
  for (let number = 0; number < 500; number++) {
    const asked = question(chosen(random)), search = write(asked)
    const { values: found, refused } = read(`?${search}`, fields, takes)
    const again = question(values(found))
    assert.deepEqual(refused, [])
    for (const { name } of fields) if (asked.asks(name)) assert.equal(again.values[name], asked.values[name], `${name} of ${search}`)
    assert.equal(write(again), search)
  }
})

test("the form's own values are not in the address, except for what is asked about", () => {
  assert.equal(write(question()), "task=lora&model=qwen3-8b&gpu=rtx-4090")
  assert.equal(write(question({ checkpointing: false, length: "4096" })),
    "length=4096&checkpointing=0&task=lora&model=qwen3-8b&gpu=rtx-4090")
})

test("what does not belong to the question is not in its address", () => {
  assert.equal(write(question({ task: "infer", length: "4096", users: "4" })), "task=infer&users=4&model=qwen3-8b&gpu=rtx-4090")
})

test("what the form does not have is refused by name, and its own value taken", () => {
  const { values: found, refused } = read("?optimizer=muon&length=many&color=red", fields, takes)
  assert.deepEqual(found, { optimizer: "adamw", length: "2048" })
  assert.deepEqual(refused, ["optimizer=muon", "length=many"])
})

test("a value as long as a book is cut", () => {
  const { values: found, refused: [said] } = read(`?model=${"x".repeat(5000)}`, fields, takes)
  assert.deepEqual(found, {})
  assert.equal(said, `model=${"x".repeat(40)}…`)
})

test("the table of an address has its axis, its order and the reader's prices, and comes back the same", () => {
  const search = withTable("task=lora&gpu=l4", { axis: "gpu", by: "cost", prices: { l4: "0.5", "rtx-3090": "", t4: ".2" } })
  assert.equal(search, "task=lora&gpu=l4&table=gpu&by=cost&prices=l4%3A0.5%2Ct4%3A.2")
  const table = readTable(`?${search}`, offered.gpus)
  assert.deepEqual(table, { axis: "gpu", by: "cost", prices: { l4: "0.5", t4: ".2" } })
  assert.equal(withTable(search, { ...table }), search)
})

test("the order that a table has anyway is not in the address", () => {
  assert.equal(withTable("by=cost&task=lora", { axis: "model", by: "rate", prices: {} }), "task=lora&table=model")
})

test("nonsense in a table's address is left out", () => {
  const table = readTable("?table=toString&by=constructor&prices=l4:free,unknown:3,t4:-1,h100-sxm5:2", offered.gpus)
  assert.deepEqual(table, { axis: undefined, by: undefined, prices: { "h100-sxm5": "2" } })
})
