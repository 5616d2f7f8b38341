// The search box: fetched when somebody searches. The worker (search.js) finds sections; this shows them, page by page.
import { make, savesData, settings, siteRoot, the } from "./shared/dom.mjs"
import { mayAsk, planned } from "./find/planner.mjs"
import { plain, results } from "./find/results.mjs"
import { bestBets, guidesFirst, led, oldName, pageOf, putBack, summary } from "./find/sections.mjs"

/** @import { Offered } from "./planner/types.js" */
/** @import { Found, Section } from "./find/sections.mjs" */
/** @import { Answered, SearchForm } from "./shared/search-form.js" */
/** @typedef {{items: Found[][]}} Items */

const MOST = 20 // pages shown
const PAUSE = 400 // milliseconds without typing, after which pages are looked into
const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3 // kinds of messages of Material's worker

const root = siteRoot(), form = /** @type {SearchForm} */ (the("form[name=search]", HTMLFormElement))
const box = the("[name=query]", HTMLInputElement, form), panel = form.parentElement ?? document.body
const status = the(".md-search-result__meta", HTMLElement, panel)
const list = the(".md-search-result__list", HTMLElement, panel)
const worker = new Worker(new URL(settings().search, location.href))
/** @type {Map<string, Section>} */
const sections = new Map()
/** @type {Record<string, string>} */
let moved = {}
/** @type {ReturnType<typeof bestBets> | undefined} */
let bet
let isReady = false
/** @type {string | undefined} The query that the worker has. */
let asked
/**
 * @type {Promise<Offered | undefined> | undefined} What the planner knows: fetched for the first question that may be
 * one for it.
 */
let choices
let paused = 0

const { result, partsOf, lookInto } = results(root, sections)
form.parts = partsOf // for the paste box of Debugging

/** @param {string} location */
const titleOf = location => sections.get(location)?.title

/** @param {string} query A link to the page your-model, which is offered above the pages. */
const plannerLink = async query => {
  if (!mayAsk(query)) return undefined
  choices ??= fetch(new URL("planner/choices.json", root)).then(answer => answer.json()).catch(() => undefined)
  const offered = await choices, question = offered && planned(query, offered)
  if (!question) return undefined
  const address = new URL(`your-model/?${new URLSearchParams(question.asked)}`, root)
  return make("a", { className: "find-ask", href: address.href }, make("b", {}, question.called),
    ": does it fit, how fast is it, what does it cost? Ask dryrun in the page")
}

const removePlannerLink = () => panel.querySelector(".find-ask")?.remove()

/** @param {string} query @param {Items & {words: string[], instead: Record<string, string>}} found */
const show = (query, { items, words, instead }) => {
  const first = [moved[oldName(query)], bet?.(query)].find(place => place !== undefined && sections.has(place))
  const groups = led(guidesFirst(items, titleOf), first)
  list.replaceChildren(...groups.slice(0, MOST).map(group => result(group, words)))
  const scrolled = list.parentElement?.parentElement
  if (scrolled) scrolled.scrollTop = 0
  status.textContent = summary(groups.length, instead)
  removePlannerLink()
  plannerLink(query).then(link => {
    removePlannerLink()
    if (link && box.value === query) status.after(link)
  })
  list.dataset.query = query // for whoever waits for the answer
  clearTimeout(paused)
  if (savesData()) return // without the pages the first sentences stay
  paused = setTimeout(() => lookInto(list, groups, words, () => list.dataset.query !== query).catch(() => {}), PAUSE)
}

// Other scripts of a page ask for the sections of a text, the best first.
/** @type {{query: string, answer: (found: Answered[]) => void, fail: (error: Error) => void}[]} */
const others = []
/** @type {typeof others[0] | undefined} Whose query the worker has. */
let other
/** @type {Error | undefined} Why there is no index. */
let failed
form.ask = query => new Promise((answer, fail) => {
  if (failed) return fail(failed)
  others.push({ query, answer, fail })
  ask()
})

const ask = () => {
  if (!isReady || asked !== undefined) return // the answer that is under way asks again
  other = others.shift()
  const query = other?.query ?? box.value
  if (other || /[\p{L}\p{N}]/u.test(query)) {
    asked = query
    worker.postMessage({ type: QUERY, data: query })
    return
  }
  list.replaceChildren()
  removePlannerLink()
  status.textContent = "Type a word, an argument or a whole error message"
  list.dataset.query = query
}

/** @param {Items} found @returns {Answered[]} the best section of each page */
const best = ({ items }) => guidesFirst(items, titleOf).flatMap(([{ location }]) => {
  const page = plain(titleOf(pageOf(location)) ?? ""), title = titleOf(location)
  return title === undefined ? [] : [{ location, title: plain(title), page }]
})

worker.addEventListener("message", ({ data }) => {
  if (data.type === READY) isReady = true
  else if (data.type === RESULT) {
    const query = asked ?? "", whose = other
    asked = other = undefined
    if (whose) whose.answer(best(data.data))
    else if (query === box.value) return show(query, { ...data.data, words: data.words, instead: data.instead })
  }
  ask()
})

form.addEventListener("submit", event => {
  event.preventDefault()
  list.querySelector("a")?.click()
})
form.addEventListener("reset", () => setTimeout(() => {
  ask()
  box.focus()
}))
box.addEventListener("input", ask) // typed, pasted, dictated or chosen
panel.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
  if (!step) return
  event.preventDefault()
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const links = panel.querySelectorAll("a.find-ask, .md-search-result__list a"), stops = [box, ...links]
  const at = stops.findIndex(stop => stop === document.activeElement)
  stops[(at + step + stops.length) % stops.length].focus()
})

status.textContent = "Loading the search"
fetch(new URL("search/search_index.json", root)).then(answer => answer.json()).then(index => {
  moved = index.moved
  bet = bestBets(index.bets, index.common)
  putBack(index)
  for (const section of index.docs) sections.set(section.location, section)
  const { config, docs, common } = index
  worker.postMessage({ type: SETUP, data: { config, docs, common, options: { suggest: false } } })
}).catch(() => {
  status.textContent = "The search could not be loaded"
  const error = failed = Error("the search could not be loaded")
  others.splice(0).forEach(({ fail }) => fail(error))
})
