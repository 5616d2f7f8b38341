import assert from "node:assert/strict"
import { test } from "node:test"
import { compared, value } from "../../docs/assets/sort/values.mjs"

const of = text => value(text, text)
const near = ([what, amount], [expected, number]) => {
  assert.equal(what, expected)
  assert.ok(Math.abs(amount - number) < 1e-9 * Math.max(1, Math.abs(number)), `${amount} is ${number}`)
}

test("bytes are compared in bytes and times in seconds", () => {
  near(of("24 GiB"), ["bytes", 24 * 2 ** 30])
  near(of("512 MiB"), ["bytes", 2 ** 29])
  near(of("1 GB"), ["bytes", 1e9])
  near(of("250 ms"), ["time", .25])
  near(of("3 µs"), ["time", 3e-6])
  near(of("2 hours"), ["time", 7200])
  near(of("1 hour"), ["time", 3600])
  near(of("5 minutes"), ["time", 300])
  near(of("1 minute"), ["time", 60])
  near(of("2 days"), ["time", 172800])
})

test("numbers have thousands, signs, powers and units of their own", () => {
  near(of("1,234,567"), ["", 1234567])
  near(of("-3.5 %"), ["%", -3.5])
  near(of("1.5e-3 loss"), ["loss", .0015])
  near(of("1,962 tokens/s"), ["tokens", 1962])
})

test("half the time is twice the speed, and less of something is a loss", () => {
  near(of("2 x as fast"), ["ratio", 2])
  near(of("0.5 x the time"), ["ratio", 2])
  near(of("4 x slower"), ["ratio", .25])
  near(of("20 % less"), ["%", -20])
})

test("a text without a number has none, and a name of JavaScript's is a unit like any", () => {
  assert.ok(isNaN(of("none")[1]))
  assert.deepEqual(of("3 constructor"), ["constructor", 3])
})

test("in a column of figures the cell's words decide, not a number beside them", () => {
  assert.deepEqual(value("3 %", "batch 8: 3 % less"), ["%", -3])
  assert.ok(isNaN(value("", "batch 8")[1]))
})

/** A column as it stands after a click. */
const sorted = (texts, direction) => {
  const values = texts.map(of), often = name => values.filter(([what]) => what === name).length
  return texts.map((text, number) => ({ text, value: values[number] })).sort((one, other) => compared(one.value, other.value, direction, often)).map(({ text }) => text)
}

test("a column is sorted in both directions, and what is no number stays last", () => {
  const texts = ["none", "2 GiB", "512 MiB", "3 %", "1 TiB"]
  assert.deepEqual(sorted(texts, 1), ["512 MiB", "2 GiB", "1 TiB", "3 %", "none"])
  assert.deepEqual(sorted(texts, -1), ["1 TiB", "2 GiB", "512 MiB", "3 %", "none"])
})
