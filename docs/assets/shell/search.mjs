// The search box: its script and index are fetched when somebody searches. Who only tabs past it opens and fetches
// nothing.
import { make, the } from "../shared/dom.mjs"
import { drawer } from "./drawer.mjs"

/** @import { SearchForm } from "../shared/search-form.js" */

const form = /** @type {SearchForm} */ (the("form[name=search]", HTMLFormElement))
const open = the("#__search", HTMLInputElement)
const query = the("[name=query]", HTMLInputElement, form), box = query.closest(".md-search")
const { src } = the("#search-script", HTMLScriptElement)
/** @type {HTMLScriptElement | undefined} */
let script

form.load = () => { // for the paste box of Debugging, too
  script ??= document.head.appendChild(make("script", { src }))
  return script
}
const search = () => {
  open.checked = true
  form.load()
}
const close = () => {
  open.checked = false
  const button = the("[data-toggles=__search]"), shown = button.checkVisibility() ? button : query
  shown.focus()
}
query.addEventListener("input", search)
query.addEventListener("pointerdown", search)
open.addEventListener("change", () => {
  if (!open.checked) return
  search()
  query.focus()
})
box?.addEventListener("focusout", event => {
  const to = event instanceof FocusEvent ? event.relatedTarget : null
  if (to instanceof Node && !box.contains(to)) open.checked = false
})

/** @param {KeyboardEvent} event Whether it asks for the search: Ctrl+K anywhere, a slash where nobody types. */
const asksForSearch = ({ key, target, ctrlKey, metaKey, altKey }) => {
  const isTyping = target instanceof Element && target.closest("input, select, textarea, [contenteditable]")
  if (key.toLowerCase() === "k") return (ctrlKey || metaKey) && !altKey
  return key === "/" && !isTyping && !ctrlKey && !metaKey && !altKey
}
addEventListener("keydown", event => {
  if (event.key === "Escape" && open.checked) return close()
  if (event.key === "Escape" && drawer.checked) return drawer.click()
  if (!asksForSearch(event)) return
  event.preventDefault()
  search()
  query.focus()
})
