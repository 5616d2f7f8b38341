// Drawings with steps: buttons go through them one by one. At first, and without scripts, the picture shows all steps.
addEventListener("DOMContentLoaded", () => document.querySelectorAll(".diagram[data-steps]").forEach(figure => {
  const steps = JSON.parse(figure.dataset.steps) // [[where on the axis it ends, what happens]]
  const bar = Object.assign(document.createElement("div"), { className: "steps" })
  const button = (text, label) => Object.assign(document.createElement("button"), { type: "button", textContent: text, ariaLabel: label })
  const back = button("‹", "One step back"), next = button("›", "Next step")
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 1, max: steps.length, value: steps.length, ariaLabel: "Step" })
  const said = document.createElement("output")
  said.textContent = `Go through its ${steps.length} steps.`
  let at = steps.length // none, all is shown
  const show = step => {
    at = step
    slider.value = step + 1
    const start = steps[step - 1]?.[0] ?? 0, [end, text] = steps[step]
    figure.querySelectorAll("[data-from]").forEach(({ dataset, classList }) => {
      classList.toggle("later", +dataset.from >= end)
      classList.toggle("now", +dataset.from < end && +dataset.to > start)
    })
    slider.ariaValueText = said.textContent = text
  }
  back.addEventListener("click", () => show((at || steps.length) - 1))
  next.addEventListener("click", () => show(at < steps.length - 1 ? at + 1 : 0))
  slider.addEventListener("input", () => show(slider.value - 1))
  bar.append(back, slider, next, said)
  figure.querySelector("svg").before(bar)
}))
