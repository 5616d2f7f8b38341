// The memory of a GPU as a bar: tensors, what is beside them, and what comes on top in the worst case.
import { make } from "../shared/dom.mjs"
import { number } from "../shared/numbers.mjs"

/** Each keeps its color. */
const COLORED = [
  "weights", "KV cache", "optimizer state", "activations", "gradients", "temporaries", "gathered weights",
  "16-bit copies of weights"
]
const OTHER = 7 // the color of what is not among them
const LEAST = .005 // GiB that are shown
const WIDE = 98 // percent of the bar's width

/** @param {string} name */
const colorOf = name => `part-${COLORED.includes(name) ? COLORED.indexOf(name) : OTHER}`

/**
 * @param {Record<string, number>} tensors GiB of each kind
 * @param {{expected_gib: number, high_gib: number, gpu_gib: number}} found
 */
export const memory = (tensors, { expected_gib: expected, high_gib: high, gpu_gib: size }) => {
  const beside = expected - Object.values(tensors).reduce((sum, gib) => sum + gib, 0)
  const parts = [
    ...Object.entries(tensors).map(([name, gib]) => ({ name, gib, className: colorOf(name) })),
    { name: "beside tensors", gib: beside, className: "part-beside" },
    { name: "more in the worst case", gib: high - expected, className: "part-most" }
  ].filter(({ gib }) => gib > LEAST)
  const scale = WIDE / Math.max(size, high)
  const bar = make("div", { className: "planner-bar" }, parts.map(({ name, gib, className }) => {
    const part = make("span", { className, title: `${name}: ${number(gib)} GiB` })
    part.style.width = `${gib * scale}%`
    return part
  }))
  const line = make("i", { title: `the GPU: ${number(size)} GiB` })
  line.style.left = `${size * scale}%`
  bar.append(line)
  return [bar, make("ul", { className: "planner-legend" }, parts.map(({ name, gib, className }) =>
    make("li", {}, make("span", { className }), `${name} ${number(gib)} GiB`)))]
}
