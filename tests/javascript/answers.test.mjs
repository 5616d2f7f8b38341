import assert from "node:assert/strict"
import { test } from "node:test"
import { summary } from "../../docs/assets/planner/brief.mjs"
import { FORMATS, asInForm, changed, inOrder, named, offeredStrategy } from "../../docs/assets/planner/changes.mjs"
import { followers } from "../../docs/assets/planner/follow.mjs"
import { judged } from "../../docs/assets/planner/measured.mjs"
import { missing, program, unable } from "../../docs/assets/planner/program.mjs"
import { fieldAtFault, fieldOf, inPage, isAnsweredByTheCommand, longest, unknownName } from "../../docs/assets/planner/refusal.mjs"
import { cost, hours, price, sorted } from "../../docs/assets/planner/rows.mjs"
import { days, verdictOf } from "../../docs/assets/planner/verdict.mjs"
import { number, range } from "../../docs/assets/shared/numbers.mjs"
import { offered, question } from "./page.mjs"

const found = (expected, high, size, fit, margin, code = "gpu-memory") =>
  ({ fits: fit === "fits", fit, expected_gib: expected, high_gib: high, gpu_gib: size, margin_gib: margin, why: { code } })
const FITS = found(10, 12, 20, "fits", 8), NO = found(30, 35, 20, "no", -10), MAYBE = found(18, 21, 20, "maybe", -1, "program")

test("numbers have three digits, and whole ones from a hundred on", () => {
  const said = [[0, "0"], [.001234, "0.00123"], [1, "1"], [9.996, "10"], [12.345, "12.3"], [99.96, "100"], [123.4, "123"], [1234567, "1,234,567"]]
  for (const [value, text] of said) assert.equal(number(value), text)
  assert.equal(number(12.345, 2), "12")
  assert.equal(range(1.25, 1250), "1.25 to 1,250")
})

test("the verdict says by how much it fits, may fit or does not", () => {
  const said = of => { const { said: text, reason } = verdictOf(of, false); return `${text}${reason}` }
  assert.equal(said(FITS), "It fits: 10 to 12 of 20 GiB; 8 GiB are left.")
  assert.equal(said(MAYBE), "It may fit: 18 to 21 of 20 GiB; in the worst case 1 GiB are missing.")
  assert.equal(said(NO), "It does not fit: 30 to 35 of 20 GiB; 10 GiB are missing.")
  assert.match(said(found(21, 22, 20, "maybe", -2, "system")), /2 GiB more than the system leaves the GPU/)
  assert.match(verdictOf(FITS, true).reason, /of 20 GiB on each GPU;/)
})

test("many hours are said in days, too", () => {
  assert.equal(days(48), "")
  assert.equal(days(72), ", 3 days")
})

test("a line says what an answer says", () => {
  const step = { ...FITS, tokens_per_second: 1962, hours: 5.25, cost: 10.5 }
  assert.equal(summary(step, "It fits", "normal"), "It fits · 8 GiB left · 1,962 tokens/s · 5.25 h · cost 10.5 · normal")
  assert.equal(summary({ ...NO, tokens_per_second: 5, hours: 1 }, "It does not fit"), "It does not fit")
  assert.equal(summary({ ...MAYBE, speed: { tokens_per_second: 50 } }, "It may fit"), "It may fit · 50 tokens/s")
  assert.equal(summary({ ...FITS, speed: null }, "It fits"), "It fits · 8 GiB left")
  assert.equal(summary({ error: "no" }, "No answer"), "No answer")
  assert.equal(summary(undefined, "No answer"), "No answer")
})

const OWN = { expected: 2000, low: 1500, high: 2600, mfu: .4 }

test("a reader's own speed is normal inside the band, and slower or faster outside", () => {
  assert.match(judged("2000", OWN).said, /^1 times what is expected, 40 % of the peak: normal$/)
  assert.deepEqual(judged("1,000 tok/s", OWN), { said: "0.5 times what is expected, 20 % of the peak: slower than nine of ten such runs: ", leads: "what takes the time", times: 2 })
  assert.match(judged("3000", OWN).said, /faster than nine of ten/)
  assert.match(judged("6000", OWN).said, /more than this GPU computes/)
  assert.equal(judged("6000", OWN).times, undefined, "no prediction follows a speed that cannot be")
})

test("a part of the peak is said with %, with a point or a comma", () => {
  for (const typed of ["40 %", "40%", "40.0 %", "40,0 %", " 40 % MFU"]) assert.match(judged(typed, OWN).said, /40 % of the peak: normal/, typed)
  assert.match(judged("22", OWN).said, /^22 tokens\/s would be 90.9 times less than expected: for a part of the peak write 22 %$/)
  assert.match(judged("0.22", OWN).said, /write 22 %$/)
  assert.match(judged("0,22", OWN).said, /write 22 %$/)
})

test("a decimal comma stays one in a percentage and behind a zero, however many digits follow", () => {
  assert.match(judged("39,998 %", OWN).said, /40 % of the peak: normal/)
  assert.match(judged("0,225", OWN).said, /write 22.5 %$/)
})

test("thousands may be apart by commas, underscores or spaces", () => {
  for (const typed of ["2000", "2,000", "2_000", "2 000", "2 000 tokens/s"]) assert.match(judged(typed, OWN).said, /^1 times/, typed)
})

test("what is no number is asked for", () => {
  for (const typed of ["fast", "0", "%", ","]) assert.match(judged(typed, OWN).said, /^give tokens\/s/, typed)
})

test("a change by its option is what the form has for it", () => {
  const set = option => changed(option, question())
  assert.deepEqual(set("--qlora 16 --checkpointing --fused-loss --dtype bf16"), { task: "qlora", checkpointing: true, "fused-loss": true })
  assert.deepEqual(set("--lora 16 --dtype bf16"), { task: "lora" })
  assert.deepEqual(set("--batch 2"), { batch: "2" })
  assert.deepEqual(set("--dtype bf16"), { dtype: "bf16" })
  assert.deepEqual(set("--compile"), { compile: true })
  assert.deepEqual(set("without --checkpointing"), { checkpointing: false })
  assert.deepEqual(set("--gpus 4 --weights int4-128"), { gpus: "4", weights: "int4-128" })
})

test("what the form has no field for is no click", () => {
  assert.equal(changed("--offload", question()), undefined)
  assert.equal(changed("without --offload", question()), undefined)
})

test("changes and formats are called as the form calls them", () => {
  assert.equal(named("--gpus 4 --weights int4-128"), "4 GPUs; 4 bits: AWQ, GPTQ")
  assert.equal(named("--weights new-format"), "new-format")
  assert.equal(asInForm("QLoRA with a fused cross entropy"), "QLoRA with fused loss")
  assert.deepEqual(inOrder(["zzz", "q4_k_m", "bf16", "fp8"]), ["bf16", "fp8", "q4_k_m", "zzz"])
  assert.ok(offered.weights.every(name => Object.hasOwn(FORMATS, name)))
})

test("a strategy is a click where the form has it, of the method that is asked", () => {
  const all = ["fsdp2", "zero2", "zero1", "ddp", "hsdp"]
  const click = (strategy, asked) => offeredStrategy({ strategy }, question({ gpus: "8", ...asked }), all)
  assert.equal(click("ZeRO-2", { task: "full" }), "zero2")
  assert.equal(click("LoRA x DDP", { task: "lora" }), "ddp")
  assert.equal(click("LoRA x DDP", { task: "full" }), "")
  assert.equal(click("FSDP2", { task: "full" }), "", "it is chosen already")
  assert.equal(click("TP 2 x FSDP2", { task: "full" }), "")
})

test("fields follow others until somebody chooses", () => {
  const follow = followers()
  assert.deepEqual(follow.typed("objective", question({ objective: "grpo" })), { batch: "8" })
  assert.deepEqual(follow.typed("objective", question({ batch: "8" })), { batch: "1" }, "back")
  follow.typed("objective", question({ objective: "grpo" }))
  follow.typed("batch", question({ batch: "4" }))
  assert.deepEqual(follow.typed("objective", question({ batch: "4" })), {}, "it was chosen")
  assert.deepEqual(follow.typed("rows", question({ rows: "100" })), { tokens: "" })
  assert.deepEqual(follow.typed("tokens", question({ tokens: "" })), {})
  assert.deepEqual(follow.typed("price", question({ price: "1,4" })), { price: "1.4" })
})

test("a Mac is asked in its usual format, and a card after it in the other again", () => {
  const follow = followers(), infer = asked => question({ task: "infer", ...asked })
  const weights = (of, asked) => of.onAnotherGpu(infer(asked)).weights
  assert.equal(weights(follow, { gpu: "m4-max", weights: "published" }), "q4_k_m")
  assert.equal(weights(follow, { gpu: "l4", weights: "q4_k_m" }), "published")
  assert.equal(weights(followers(), { gpu: "l4", weights: "q4_k_m" }), "q4_k_m", "it was chosen")
  assert.equal(weights(followers(), { gpu: "m4-max", weights: "fp8" }), "fp8")
})

test("what ran on one GPU leaves with it", () => {
  const asked = question({ gpu: "l4", measured: "2000", ran: "one:1.13" }), then = followers().onAnotherGpu(asked)
  assert.deepEqual([then.measured, then.ran], ["", ""])
})

const refused = (field, given, problem, fix = "", code = "", nearest = []) =>
  ({ error: "in other words", refusal: { code, field, given, problem, fix, nearest } })

test("a refusal is about a field of the form", () => {
  const infer = question({ task: "infer" }), train = question()
  const field = (name, asked) => fieldAtFault(refused(name, 1, "no"), asked)
  const of = [["batch", infer, "users"], ["batch", train, "batch"], ["lora", train, "rank"], ["gpus-per-node", train, "gpus-per-node"],
    ["new", question({ objective: "grpo" }), "written"], ["new", infer, "new"], ["gpu", train, "gpu"], ["gpus_per_node", train, "gpus-per-node"],
    ["precision", train, "dtype"], ["prompt + new", infer, "prompt"], ["", train, undefined]]
  for (const [name, asked, expected] of of) assert.equal(field(name, asked), expected, name)
  assert.equal(fieldAtFault({ error: "something else" }, train), undefined)
  assert.equal(fieldOf("qlora", train), "rank")
})

test("a refusal is in the words of the page", () => {
  const label = field => ({ length: "Tokens of a sequence", rank: "Rank of LoRA", price: "Price of a GPU hour", gpus: "GPUs" })[field]
  const said = [
    [refused("price", "--price", "'cheap': give a number", " (all options: x)", "option"), "Price of a GPU hour: 'cheap': give a number"],
    [refused("unknown", "--unknown", "no", "", "option"), "unknown: no"],
    [refused("gpu", "gaudi-3", "no time is predicted", "leave --gpu out", "unpredicted"), "GPU “gaudi-3”: no time is predicted."],
    [refused("gpu", "m4-max", "by `dryrun infer`", "", "one-reader"), /by the task “Run it”/],
    [refused("length", 50000, "it has 40960 positions", "take 40960 or fewer", "positions", [40960]),
      "Tokens of a sequence: 50,000: it has 40960 positions: take 40960 or fewer"],
    [refused("prompt + new", 50000, "it has 4096 positions", "take 4096", "positions", [4096]),
      "Prompt and answer: 50,000 tokens: it has 4096 positions: take 4096"],
    [refused("gpus", 12, "no whole number of nodes of 8", "gpus_per_node", "nodes", [16]),
      "GPUs: 12: no whole number of nodes of 8: take 16, or say how many a node has, “GPUs in a node”"],
    [refused("model", "vit", "no profile", "", "untraced"),
      "vit: this page has no trace of this model for this question. On a machine with torch the command answers:"],
    [refused("gpus", 3, "the 32 heads do not divide", "take 2"), "GPUs: 3: the 32 heads do not divide: take 2"],
    [refused("", null, "x"), "in other words"]
  ]
  for (const [one, text] of said) (text instanceof RegExp ? assert.match : assert.equal)(inPage(one, label), text)
})

test("what follows from a refusal: a name that is not known, a longest sequence, a command that answers", () => {
  assert.equal(unknownName(refused("gpu", "h300", "", "", "unknown")), "gpu")
  assert.equal(unknownName(refused("model", "x", "", "", "unknown")), "model")
  assert.equal(unknownName(refused("gpu", "gaudi-3", "", "", "unpredicted")), undefined)
  assert.equal(longest(refused("length", 50000, "", "", "positions", [40960])), 40960)
  assert.equal(longest(refused("prompt + new", 50000, "", "", "positions", [40960])), undefined)
  assert.ok(isAnsweredByTheCommand(refused("model", "x", "", "", "untraced")) && !isAnsweredByTheCommand(refused("gpus", 3, "")))
})

const row = (name, of, rate, more = {}) => ({ name, ...of, tokens_per_second: rate, low: null, high: null, ...more })
const priced = (asked, prices = {}, tokens = 3.6e6) => ({ question: question(asked), axis: "gpu", tokens, prices })

test("what fits comes first, and then the column that is chosen", () => {
  const rows = [row("t4", NO, 900), row("l4", MAYBE, 800), row("rtx-4090", FITS, 100), row("rtx-3090", FITS, 300), row("h100-sxm5", FITS, null)]
  const names = (by, prices) => sorted(rows, by, priced({}, prices)).map(one => one.name)
  assert.deepEqual(names("rate", {}), ["rtx-3090", "rtx-4090", "h100-sxm5", "l4", "t4"])
  assert.deepEqual(names("cost", { "rtx-4090": "0.1", "rtx-3090": "3" }), ["rtx-4090", "rtx-3090", "h100-sxm5", "l4", "t4"])
  assert.equal(rows[0].name, "t4", "the rows themselves stay as they came")
})

test("a cost is hours times the price of that GPU times its number; that of the form is of its own GPU", () => {
  const by = priced({ price: "2", gpus: "4" }, { "rtx-3090": "0.5" })
  assert.equal(hours(row("rtx-4090", FITS, 1000), by), 1)
  assert.equal(price(row("rtx-4090", FITS, 1000), by), 2)
  assert.equal(cost(row("rtx-4090", FITS, 1000), by), 8)
  assert.equal(cost(row("rtx-3090", FITS, 500), by), 4)
  assert.equal(cost(row("l4", FITS, 500), by), 0, "nobody named its price")
  assert.equal(hours(row("rtx-4090", NO, 1000), by), 0)
  assert.equal(hours(row("l4", FITS, 50, { hours_of_million: 5.5 }), priced({ task: "infer" })), 5.5)
  assert.equal(price(row("rtx-4090", FITS, 1), priced({ price: "cheap" })), 0)
})

const shown = (asked, more = {}) => ({
  question: question(asked), known: "qwen3-8b", refused: [], more: false,
  train: { ...FITS, gpu: "rtx-4090", ...more }
})

test("the recipe's program is given the values of the question, where it can run it", () => {
  assert.equal(program(shown({ task: "qlora", length: "1024", accumulation: "8" })),
    "python finetune_8b.py --model Qwen/Qwen3-8B --data conversations.jsonl --bits 4 --length 1024 --batch 8 --epochs 1")
  assert.equal(program(shown({ task: "full", gpu: "h100", gpus: "8", batch: "2", epochs: "1.5" }, { gpu: "h100-sxm5" })),
    "torchrun --nproc-per-node 8 finetune_14b.py --model Qwen/Qwen3-8B --data conversations.jsonl --length 2048 --batch 64 --micro-batch 2 --epochs 2")
})

test("no program is shown that runs another step, and why is said", () => {
  for (const asked of [{ checkpointing: false }, { objective: "dpo" }, { optimizer: "sgd" }, { rank: "32" }, { batch: "4" }]) assert.equal(program(shown(asked)), "", JSON.stringify(asked))
  assert.deepEqual(missing(question({ checkpointing: false, rank: "32" })), ["no checkpointing", "rank 32"])
  assert.deepEqual(unable(shown({ batch: "4" }), "t4"), ["the recipe for adapters takes one sequence at once: accumulate instead", "the recipes compute in bf16"])
  assert.deepEqual(unable({ ...shown({}), known: "" }, "l4"), ["its model is not on the Hub by a name that is known here"])
  assert.equal(program(shown({}, NO)), "")
})

test("a server is given the model's name on the Hub, or a place for a file in another format", () => {
  const serve = (asked, server) => program({ ...shown({ task: "infer", ...asked }), train: undefined, infer: { ...FITS, server, gpu: "l4" } })
  assert.equal(serve({}, "vllm serve MODEL"), "vllm serve Qwen/Qwen3-8B")
  assert.equal(serve({ weights: "int4-128" }, "vllm serve MODEL"), "vllm serve MODEL")
  assert.equal(serve({}, "llama-server -m MODEL.gguf"), "llama-server -m MODEL.gguf")
})
