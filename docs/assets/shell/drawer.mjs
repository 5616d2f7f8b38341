// The buttons that open the navigation and the search, for those who use a keyboard.
import { the } from "../shared/dom.mjs"

export const drawer = the("#__drawer", HTMLInputElement)

/** @type {NodeListOf<HTMLElement>} */
const buttons = document.querySelectorAll("[data-toggles]")
buttons.forEach(button => {
  button.addEventListener("click", () => the(`#${button.dataset.toggles}`).click())
})
drawer.addEventListener("change", () => {
  the(drawer.checked ? ".md-sidebar--primary a" : "[data-toggles=__drawer]").focus()
})
