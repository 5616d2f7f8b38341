// The place of the answer: what stands there while one waits, and an answer in place of another.
import { make, the } from "../shared/dom.mjs"
import { briefOf } from "./brief.mjs"

/** @typedef {Parameters<ReturnType<typeof briefOf>["show"]>[0]} Found */

export const paneOf = () => {
  const element = the("#planner-answer"), brief = briefOf(element)
  const busy = the(".planner-busy")
  const waiting = () => element.querySelector(".planner-wait")

  /** @param {string} text Until there is an answer, also in the line that a phone shows. */
  const wait = text => {
    const now = waiting()
    if (now) now.textContent = text
    else element.replaceChildren(make("p", { className: "planner-wait" }, text))
    brief.wait(text)
  }

  /** @param {boolean} isOld Whether what is shown is of the question before. */
  const age = isOld => {
    element.classList.toggle("planner-old", isOld)
    busy.hidden = !isOld
  }

  /**
   * Replaces the answer. The cursor stays where it is, on a button of the same text.
   * @param {(Node | string)[]} parts @param {Found} [found] @param {boolean} [more] whether more follows
   */
  const show = (parts, found, more = false) => {
    const held = document.activeElement
    const isHeld = held && element.contains(held)
    age(false)
    element.setAttribute("aria-busy", String(more))
    element.replaceChildren(...parts)
    brief.show(found)
    if (!isHeld) return
    const same = [...element.querySelectorAll(held.tagName)].find(one => one.textContent === held.textContent)
    if (same instanceof HTMLElement) same.focus({ preventScroll: true })
  }

  /** Leads to the verdict: the button that was pressed is gone. */
  const leadToVerdict = () => {
    const verdict = brief.verdict()
    verdict?.focus({ preventScroll: true })
    verdict?.scrollIntoView({ block: "nearest" })
  }
  return { element, brief, waiting, wait, age, show, leadToVerdict }
}
