// On a phone the answer is below the form: its first words stay in sight, and lead to it.
import { the } from "../shared/dom.mjs"
import { number } from "../shared/numbers.mjs"

/** @import { Judged, Refusal, Serving, Training } from "./types.js" */
/** @typedef {Training | Serving | Judged} Found */

/** @param {Found} found of a step, of users, of a row */
const rateOf = found =>
  "tokens_per_second" in found ? found.tokens_per_second : "speed" in found && found.speed?.tokens_per_second

/**
 * What an answer says in a line.
 * @param {Found | Refusal | undefined} found @param {string} verdict as it is shown
 * @param {string} [mine] what it says of the reader's own speed
 */
export const summary = (found, verdict, mine) => {
  if (!found || "error" in found) return verdict
  const rate = rateOf(found), now = found.fit, { hours = 0, cost = 0 } = "hours" in found ? found : {}
  const rest = [rate && `${number(rate)} tokens/s`, hours && `${number(hours)} h`, cost && `cost ${number(cost)}`]
  const left = now === "fits" && `${number(found.margin_gib, 2)} GiB left`
  return [verdict, left, ...(now === "no" ? [] : rest), mine].filter(Boolean).join(" · ")
}

/** @param {HTMLElement} answer */
export const briefOf = answer => {
  const element = the(".planner-brief")
  const inSight = new IntersectionObserver(([entry]) =>
    element.classList.toggle("seen", entry.isIntersecting || entry.boundingClientRect.top < 0))

  /** @returns {HTMLElement | null} */
  const verdict = () => answer.querySelector(".planner-verdict")

  element.addEventListener("click", () => {
    const shown = verdict()
    if (!shown) return
    shown.tabIndex = -1
    shown.focus({ preventScroll: true })
    shown.scrollIntoView()
  })

  /** @param {string} text Until there is a verdict. */
  const wait = text => {
    if (verdict()) return
    element.textContent = text
    element.hidden = false
  }

  /** @param {Parameters<typeof summary>[0]} [found] */
  const show = found => {
    const shown = verdict()
    inSight.disconnect()
    element.hidden = !shown
    if (!shown) return
    inSight.observe(shown)
    const yours = [...answer.querySelectorAll("dt")].find(one => one.textContent === "Yours")
    const said = yours?.nextElementSibling?.firstChild?.textContent // and not its buttons
    const mine = said?.match(/: ([^:]+)/)?.[1]
    element.textContent = summary(found, (shown.querySelector("b") ?? shown).textContent, mine)
  }
  return { verdict, wait, show }
}
