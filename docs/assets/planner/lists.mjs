// The lists behind the fields: models, GPUs, formats of weights, kinds of models and networks.
import { make, the } from "../shared/dom.mjs"
import { number } from "../shared/numbers.mjs"
import { FORMATS, inOrder } from "./changes.mjs"
import { DEFAULTS } from "./command.mjs"

/** @import { Form } from "./form.mjs" */
/** @import { Offered } from "./types.js" */

/** @param {string[]} names */
const choices = names => names.map(name => make("option", { value: name }, name))

/** @param {Form} form @param {HTMLSelectElement} kinds @param {Offered} offered */
export const fillLists = (form, kinds, offered) => {
  the("#planner-models", HTMLDataListElement).append(...[...offered.models, ...offered.memory].map(one =>
    make("option", { value: one.name, label: `${number(one.parameters / 1e9)} billion parameters` })))
  the("#planner-gpus", HTMLDataListElement).append(...offered.gpus.map(one =>
    make("option", { value: one.name, label: one.label })))
  form.control("weights").append(...inOrder(offered.weights).map(name =>
    make("option", { value: name }, FORMATS[name] ?? name)))
  kinds.append(...choices(offered.families))
  form.control("network").append(...choices(offered.networks))
  for (const field of form.fields) if (field.name === "weights") field.start = DEFAULTS.weights
}

/**
 * A list shows what begins like the text in its field. So a click empties the field: the whole list is there, and
 * leaving brings the text back.
 * @param {Form} form @param {() => void} left when a field is left empty
 */
export const showWholeLists = (form, left) => {
  for (const field of form.controls) {
    if (!(field instanceof HTMLInputElement) || !field.list) continue
    field.addEventListener("pointerdown", () => {
      if (document.activeElement === field) return
      field.placeholder = field.value
      field.value = ""
    })
    field.addEventListener("focus", () => {
      field.placeholder = field.value || field.placeholder
      field.select()
    })
    field.addEventListener("blur", () => {
      if (field.value) return
      field.value = field.placeholder
      left()
    })
  }
}
