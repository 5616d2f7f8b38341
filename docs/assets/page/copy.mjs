// Copying: a block of code, and the page as Markdown.
import { make } from "../shared/dom.mjs"

const PAUSE = 2000 // milliseconds for which it says that it was done

document.querySelectorAll("article .highlight > pre").forEach(block => {
  if (block.closest(".nb-output")) return
  block.append(make("button", { className: "copy", type: "button" }, "Copy"))
})
addEventListener("click", async ({ target: button }) => { // those of the planner's commands too
  if (!(button instanceof Element) || !button.matches("pre > .copy")) return
  const code = button.parentElement?.querySelector("code")?.cloneNode(true)
  if (!(code instanceof Element)) return
  code.querySelectorAll(".note").forEach(mark => mark.remove())
  try {
    await navigator.clipboard.writeText(code.textContent)
    button.textContent = "Copied"
  } catch {
    button.textContent = "Not allowed"
  }
  setTimeout(() => { button.textContent = "Copy" }, PAUSE)
})

/** @type {HTMLAnchorElement | null} */
const markdown = document.querySelector("a#as-markdown")
/** @param {string} address @returns {Promise<Blob>} */
const textAt = async address => {
  const answer = await fetch(address)
  if (!answer.ok) throw new Error(address)
  return new Blob([await answer.blob()], { type: "text/plain" })
}
markdown?.addEventListener("click", async event => {
  event.preventDefault()
  try { // a promise: Safari forgets the click while it waits
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": textAt(markdown.href) })])
    markdown.dataset.said = "Copied"
    setTimeout(() => { delete markdown.dataset.said }, PAUSE)
  } catch {
    location.href = markdown.href
  }
})
