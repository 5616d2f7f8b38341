// The form of docs/your-model.md: its fields and their values.
import { the } from "../shared/dom.mjs"
import { DEFAULTS } from "./command.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Field, Values } from "./types.js" */
/** @typedef {HTMLInputElement | HTMLSelectElement} Control */
/** @typedef {ReturnType<typeof formOf>} Form */

/** @type {Record<string, string[]>} What a field is called: of sequences, of pairs, of answers to rewards. */
const CALLED = {
  length: ["Tokens of a sequence", "Tokens of prompt and answer, each of a pair", "Tokens of prompt and answer"],
  batch: ["Sequences at once, of each GPU", "Pairs at once, of each GPU", "Answers at once, of each GPU"],
  rows: ["Rows, each as long as a sequence", "Pairs, two such sequences each", "Answers in all, each with its prompt"]
}

/** @param {unknown} element @returns {element is Control} */
const isControl = element => element instanceof HTMLInputElement || element instanceof HTMLSelectElement

/** @param {Control} control @returns {control is HTMLInputElement} */
const isCheckbox = control => control.type === "checkbox"

/** @param {Control} control */
const valueOf = control => isCheckbox(control) ? control.checked : control.value

/** @param {Control} control */
const labelOf = control => control.labels?.[0]?.firstChild?.textContent?.trim()

/** @param {Control} control */
const isWrong = ({ validity }) => validity.badInput || validity.rangeUnderflow

/** @param {Element | null} inner @returns {string[]} */
const groupsOf = inner => {
  /** @type {HTMLElement | null | undefined} */
  const part = inner?.closest("[data-for-task]")
  return part ? [part.dataset.forTask ?? "", ...groupsOf(part.parentElement)] : []
}

export const formOf = () => {
  const element = the("#planner", HTMLFormElement), controls = [...element.elements].filter(isControl)
  const named = new Map(controls.filter(one => one.name).map(one => [one.name, one]))
  /** @type {Field[]} */
  const fields = [...named].map(([name, control]) => (
    { name, checkbox: isCheckbox(control), start: valueOf(control), groups: groupsOf(control) }))
  for (const [name, value] of Object.entries(DEFAULTS)) { // what an empty field counts as
    const one = named.get(name)
    if (one?.type === "number") one.setAttribute("placeholder", value)
  }

  /** @param {string} name */
  const control = name => {
    const found = named.get(name)
    if (!found) throw new Error(`the form has no field ${name}`)
    return found
  }

  /** @param {Values} values */
  const set = values => {
    for (const [name, value] of Object.entries(values)) {
      const one = control(name)
      if (isCheckbox(one)) one.checked = value === true
      else one.value = String(value)
    }
  }

  /**
   * @param {string} name
   * @param {string} value Whether the field can have it: a list has its own, a number no letters.
   */
  const takes = (name, value) => {
    const one = control(name), before = one.value
    one.value = value
    const isTaken = one.value === value
    one.value = before
    return isTaken
  }

  /** @param {Question} question Shows what belongs to it, by the names that it has there. */
  const show = question => {
    /** @type {NodeListOf<HTMLElement>} */
    const parts = element.querySelectorAll("[data-for-task]")
    for (const part of parts) part.hidden = !question.is(part.dataset.forTask ?? "")
    for (const [name, words] of Object.entries(CALLED)) {
      const text = control(name).labels?.[0].firstChild
      if (text) text.textContent = `${words[question.grpo ? 2 : question.pairs ? 1 : 0]} `
    }
  }

  /** Opens the folds in which a value is not the form's own. */
  const unfold = () => {
    const changed = fields.map(({ name, start }) => ({ one: control(name), start })).filter(({ one, start }) =>
      valueOf(one) !== start)
    for (const fold of element.querySelectorAll("details")) fold.open ||= changed.some(({ one }) => fold.contains(one))
  }

  /** @param {string} [name] Marks the field at fault, and no other. */
  const mark = name => {
    for (const one of element.elements) one.removeAttribute("aria-invalid")
    named.get(name ?? "")?.setAttribute("aria-invalid", "true")
  }

  /** @param {Question} question A field of it that is no number, or too small a one, and what to say of it. */
  const unread = question => {
    const one = controls.find(each => isWrong(each) && (!each.name || question.asks(each.name)))
    if (!one) return undefined
    const right = one.validity.badInput ? "a number" : `${one.getAttribute("min")} or more`
    return { control: one, text: `${labelOf(one)}: give ${right}` }
  }

  return {
    element, controls, fields, control, set, takes, show, unfold, mark, unread,
    /** @param {string} name @returns {string | undefined} */
    label: name => named.has(name) ? labelOf(control(name)) : undefined,
    /** @returns {Values} */
    values: () => Object.fromEntries([...named].map(([name, one]) => [name, valueOf(one)])),
    reset: () => set(Object.fromEntries(fields.map(({ name, start }) => [name, start])))
  }
}
