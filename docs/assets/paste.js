// The paste box of Debugging: finds the errors in a log, asks the search for each, and shows what the section says to
// do first. Nothing of the log leaves the page.
import { make, siteRoot, the } from "./shared/dom.mjs"
import { errors, sameMessage } from "./paste/errors.mjs"

/** @import { Answered, SearchForm } from "./shared/search-form.js" */

const PARTS = 3 // paragraphs shown of a section
const SHOWN = 160 // letters of an error
const ASKED = 2000 // letters of it that the search is asked for
const PAUSE = 200 // milliseconds without typing
const OTHERS = 2 // sections beside the best

const form = the("#paste", HTMLFormElement), box = the("[name=log]", HTMLTextAreaElement, form)
const answer = the("#paste-found"), root = siteRoot()
const search = /** @type {SearchForm} */ (the("form[name=search]", HTMLFormElement))

/** @param {string} text @returns {Promise<Answered[]>} */
const sections = async text => {
  const script = search.load() // by shell.js; find.js then answers
  if (!search.ask) {
    await new Promise((resolve, reject) => {
      script.addEventListener("load", resolve)
      script.addEventListener("error", () => reject(Error("the search")))
    })
  }
  return search.ask?.(text.slice(0, ASKED)) ?? []
}

/** @param {Element} part @param {string} location Makes a part of another page one of this. */
const moveHere = (part, location) => {
  part.querySelectorAll("button.claim").forEach(button => button.replaceWith(button.textContent ?? ""))
  part.querySelectorAll("button").forEach(button => button.remove())
  part.querySelectorAll("[id]").forEach(inner => inner.removeAttribute("id"))
  part.querySelectorAll("a").forEach(link => {
    const href = link.getAttribute("href")
    if (href !== null) link.href = new URL(href, new URL(location, root)).href
  })
}

/**
 * @param {string} location
 * @param {string} text What a section says after this message, or first where it shows another one.
 */
const advice = async (location, text) => {
  const parts = (await search.parts(location)).map(part => document.importNode(part, true))
  const blocks = parts.filter(part => part.matches(".language-text"))
  const own = sameMessage(blocks.map(block => block.textContent ?? ""), text)
  const message = own > 0 ? parts.indexOf(blocks[own]) : -1 // what stands before the first message is said of it
  /** @type {Element[]} */
  const shown = []
  for (const part of parts.slice(message + 1)) {
    if (shown.length === PARTS) break
    if (!part.matches("p, ul, ol, div:has(> table), .highlight:not(.language-text)")) continue
    moveHere(part, location)
    shown.push(part)
    if (part.matches(".highlight")) break // up to its first program
  }
  if (shown.at(-1)?.textContent?.trim().endsWith(":")) shown.pop() // what it announces is not shown
  return shown
}

/** @param {string} text of an error */
const entry = async text => {
  const [best, ...others] = await sections(text), said = make("code", {}, text.slice(0, SHOWN))
  if (!best) return make("section", {}, make("p", {}, said), make("p", {}, "No section has these words."))
  /** @param {Answered} section */
  const link = ({ location, title, page }) =>
    make("a", { href: new URL(location, root).href }, page === title ? title : `${page}: ${title}`)
  const more = others.slice(0, OTHERS).flatMap(section => [" · ", link(section)]).slice(1)
  return make("section", {},
    make("p", { className: "paste-said" }, said), make("p", { className: "paste-title" }, link(best)),
    await advice(best.location, text),
    more.length > 0 && make("p", { className: "paste-more" }, "If that is not it: ", more))
}

let asked = 0, waiting = 0
const look = async () => {
  const mine = ++asked, log = box.value
  /** @type {HTMLElement[]} */
  let parts = []
  try {
    if (log.trim()) parts = await Promise.all(errors(log).map(entry))
  } catch (error) {
    const why = error instanceof Error ? error.message : error
    parts = [make("p", {}, `It could not be looked up: ${why}. Load the page again.`)]
  }
  if (mine === asked) answer.replaceChildren(...parts)
}
form.addEventListener("submit", event => event.preventDefault())
box.addEventListener("input", () => {
  clearTimeout(waiting)
  waiting = setTimeout(look, PAUSE)
})
if (box.value) look() // what the browser kept
