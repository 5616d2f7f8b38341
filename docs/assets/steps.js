// Drawings with steps: buttons go through them one by one. At first, and without scripts, the picture shows all steps.
import { make, the } from "./shared/dom.mjs"

/** @typedef {[number, string]} Step where on the axis it ends, and what happens */

/** @param {HTMLElement} figure */
const goThrough = figure => {
  /** @type {Step[]} */
  const steps = JSON.parse(figure.dataset.steps ?? "[]")
  /** @type {NodeListOf<SVGElement>} */
  const parts = figure.querySelectorAll("[data-from]")
  const back = make("button", { type: "button", ariaLabel: "One step back" }, "‹")
  const next = make("button", { type: "button", ariaLabel: "Next step" }, "›")
  const last = String(steps.length)
  const slider = make("input", { type: "range", min: "1", max: last, value: last, ariaLabel: "Step" })
  const said = make("output", {}, `Go through its ${last} steps.`)
  let at = steps.length // none, all is shown

  /** @param {number} step */
  const show = step => {
    at = step
    slider.value = String(step + 1)
    const start = steps[step - 1]?.[0] ?? 0, [end, text] = steps[step]
    parts.forEach(({ dataset, classList }) => {
      const from = Number(dataset.from)
      classList.toggle("later", from >= end)
      classList.toggle("now", from < end && Number(dataset.to) > start)
    })
    said.textContent = text
    slider.ariaValueText = text
  }
  back.addEventListener("click", () => show((at || steps.length) - 1))
  next.addEventListener("click", () => show(at < steps.length - 1 ? at + 1 : 0))
  slider.addEventListener("input", () => show(Number(slider.value) - 1))
  the("svg", SVGElement, figure).before(make("div", { className: "steps" }, back, slider, next, said))
}

addEventListener("DOMContentLoaded", () => {
  /** @type {NodeListOf<HTMLElement>} */
  const figures = document.querySelectorAll(".diagram[data-steps]")
  figures.forEach(goThrough)
})
