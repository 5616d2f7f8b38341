import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"
import { dictionary, isOneOff } from "../../docs/assets/search/dictionary.mjs"
import { rewrite } from "../../docs/assets/search/query.mjs"
import { rarity, rescored, sorted } from "../../docs/assets/search/scores.mjs"
import { MEANS, PLAIN, saysLittle } from "../../docs/assets/search/vocabulary.mjs"

const COUNTS = new Map(Object.entries({
  memory: 50, gpu: 80, training: 40, train: 10, profile: 12, profiler: 30, profiling: 1, checkpoint: 20, checkpointing: 9,
  token: 5, tokenizer: 30, gradient: 25, color: 4, labeled: 3, out: 1, fp32: 6, zero: 20, mixture: 8, experts: 8, optimizer: 9
}))
const MISSPELT = JSON.parse(readFileSync(new URL("../data/misspelt_words.json", import.meta.url), "utf8"))
const WORDS = dictionary(COUNTS, new Set(["the", "of", "a", "is", "on"]))
const ask = (query, together = false) => rewrite(query, WORDS, () => together)

test("a word is one off by a letter more, less, other, or two that changed places", () => {
  for (const typed of ["memory".slice(1), ...Object.keys(MISSPELT).filter(one => MISSPELT[one] === "memory")]) assert.ok(isOneOff(typed, "memory"), typed)
  for (const typed of ["memory", "memo", "mmeroy", "membory2"]) assert.ok(!isOneOff(typed, "memory"), typed)
})

test("a word is known as it stands, as it begins one, in another spelling, or mistyped", () => {
  const said = { memory: "memory", mem: "mem", tokenizing: "tokeniz", xyzzy: "xyzzy", ...MISSPELT }
  for (const [typed, word] of Object.entries(said)) assert.equal(WORDS.known(typed), word, typed)
})

test("a form that pages hardly use stands for those that they do", () => {
  assert.equal(WORDS.ofForm("profiling"), "profil")
  assert.equal(WORDS.ofForm("memory"), "memory")
  assert.equal(WORDS.ofForm("training"), "training", "pages use it")
})

test("a number and its unit are two words, but for names that pages have", () => {
  assert.deepEqual(WORDS.apart("24gb"), ["24", "gb"])
  assert.deepEqual(WORDS.apart("zero3"), ["zero", "3"])
  assert.deepEqual(WORDS.apart("fp32"), ["fp32"])
})

test("how many sections have a word that begins so", () => {
  assert.equal(WORDS.having("profil"), 43)
  assert.equal(WORDS.having("zzz"), 0)
})

test("common words are left out, and the word itself goes before what begins so", () => {
  const { text, told } = ask("the memory of a gpu")
  assert.deepEqual(told, ["memory", "gpu"])
  assert.equal(text, "memory^2 memory gpu^2 gpu")
  assert.deepEqual(ask("is the").told, ["is", "the"], "where there are no others")
})

test("a word in place of a mistyped one is said", () => {
  const { told, instead } = ask("memozy gpu")
  assert.deepEqual([told, instead], [["memory", "gpu"], { memozy: "memory" }])
  assert.deepEqual(ask("gpu").instead, {}, "and no more in the next query")
})

test("a synonym is added, or takes the word's place", () => {
  assert.match(ask("moe").text, /^moe\^2 moe mixture experts$/)
  assert.deepEqual(ask("vram").told, ["gpu", "memory"])
  for (const word of ["constructor", "toString"]) assert.ok(!ask(word).text.includes("function"), word)
})

test("a number is no beginning of another, and words that say little have no weight", () => {
  assert.equal(ask("30").text, "30^2")
  assert.equal(ask("fine tuning memory").text, "fine tuning memory^2 memory")
  for (const word of ["fine", "tuning", "something", "hours", "works"]) assert.ok(saysLittle(word), word)
  for (const word of ["memory", "sometime", "finer"]) assert.ok(!saysLittle(word), word)
})

test("a quotation, and a name that some section has whole, mean all of their words", () => {
  assert.equal(ask('"gpu memory"').text, "+gpu +memory")
  assert.equal(ask("zero_to_fp32.py", true).text, "+zero +to +fp32 +py")
  assert.ok(!ask("zero_to_fp32.py").text.includes("+"))
})

test("forms of the query before do not count in the next one", () => {
  assert.deepEqual(Object.keys(ask("profiling").forms), ["profiling"])
  assert.deepEqual(ask('"gpu memory"').forms, {})
})

test("a path and a function of the reader's own are no words of a message", () => {
  assert.deepEqual(ask('File "src/gpu.py", line 3, in memory\ngradient').told, ["gradient"])
})

test("names in capitals are their words, too", () => {
  assert.match(ask("GradientCheckpoint").text, /gradient checkpoint$/)
})

test("what synonyms stand for are words, and none stands for itself", () => {
  for (const [word, means] of Object.entries({ ...MEANS, ...PLAIN })) {
    assert.match(means, /^[a-z\d]+( [a-z\d]+)*$/)
    assert.ok(!means.split(" ").includes(word), word)
  }
  assert.deepEqual(Object.keys(MEANS).filter(word => Object.hasOwn(PLAIN, word)), [])
})

const weight = word => ({ rare: 4, often: 1 })[word] ?? 0
const item = (score, terms, parent) => ({ score, terms, parent })

test("a rare word counts for more than one that most sections have, and a page for less than Material has it", () => {
  const has = (rare, often) => { // the score as Material hands it over
    const share = (Number(rare) + Number(often)) / 2
    return rescored(item(10 * (1 + share ** 2), { rare, often }, "page"), {}, weight).score
  }
  assert.ok(has(true, true) > has(true, false) && has(true, false) > has(false, true) && has(false, true) > has(false, false))
  const section = rescored(item(10 * (1 + 1), { rare: true }, "page"), {}, weight).score
  const page = rescored(item(10 * (1 + 4), { rare: true }), {}, weight).score
  assert.equal(section, 20)
  assert.equal(page, 10 * (1 + 1.5 ** 2))
})

test("forms and words that say little are no words that a section must have", () => {
  const bare = rescored(item(10, { rare: true }, "page"), {}, weight).score
  assert.equal(rescored(item(10, { rare: true, profiling: false, fine: false }, "page"), { profiling: "profil" }, weight).score, bare)
})

test("pages stand by their best section, and the others count a little", () => {
  const group = (...scores) => scores.map(score => item(score, {}, "page"))
  const order = sorted([group(1, 10), group(10, 9, 9), group(11)], {}, weight).map(items => items.map(({ score }) => score))
  assert.deepEqual(order, [[10, 9, 9], [11], [10, 1]])
})

test("the fewer sections have a word, the rarer it is, and never below nothing", () => {
  assert.ok(rarity(100, 1) > rarity(100, 50) && rarity(100, 50) > rarity(100, 99))
  assert.equal(rarity(100, 1000), 0)
})
