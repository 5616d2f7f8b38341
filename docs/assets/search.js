// The worker of the search: Material's, which the address names, with three changes: the query, the order of what is
// found, and a mended lunr. Runs only when somebody searches.
import { dictionary } from "./search/dictionary.mjs"
import { rewrite } from "./search/query.mjs"
import { rarity, sorted } from "./search/scores.mjs"

/** @import { Query } from "./search/query.mjs" */
/**
 * @typedef {Record<string, Record<string, Record<string, unknown>>>} Inverted by word and field: the sections that have
 * it
 */
/** @typedef {{invertedIndex: Inverted, fieldVectors: Record<string, unknown>}} Index */

const SETUP = 0, QUERY = 2 // kinds of messages of Material's worker
const TITLE = 5 // a word of a title counts as in so many sections more

/** @type {Set<string>} The index brings them (evidence/site/search_index.py), which leaves them out of its texts. */
let common = new Set()
/** @type {Inverted} */
let inverted = {}
let sections = 0, words = dictionary(new Map(), common)
/** @type {Query} */
let asked = { text: "", told: [], instead: {}, forms: {} }

/** @param {Index} index */
const learn = index => {
  inverted = index.invertedIndex
  const counts = new Map(Object.entries(inverted).map(([word, { text, title }]) =>
    [word, Object.keys(text).length + TITLE * Object.keys(title).length]))
  words = dictionary(counts, common)
  sections = Object.keys(index.fieldVectors).filter(name => name.startsWith("title/")).length
}

/** @param {string} name */
const placesOf = name => ["title", "text"].flatMap(field => Object.keys(inverted[name]?.[field] ?? {}))

/** @param {string[]} names Whether a section has all parts of a name: zero_to_fp32.py. */
const areTogether = names => names.length > 2 &&
  names.map(placesOf).reduce((some, more) => some.filter(place => more.includes(place))).length > 0

/** @param {string} word */
const weight = word => rarity(sections, words.having(word))

addEventListener("message", ({ data }) => { // before Material's
  if (data.type === SETUP) common = new Set(data.data.common)
  else if (data.type === QUERY) {
    asked = rewrite(data.data, words, areTogether)
    data.data = asked.text
  }
})

const worker = /** @type {{postMessage: (answer: any) => void, importScripts: (address: string) => void, lunr: any}} */
  (/** @type {unknown} */ (self))
const post = worker.postMessage.bind(self)
worker.postMessage = answer => {
  const items = answer.data?.items, { told, instead, forms } = asked
  const data = items ? { ...answer.data, items: sorted(items, forms, weight) } : answer.data
  post({ ...answer, data, words: told, instead })
}

worker.importScripts(new URLSearchParams(location.search).get("worker") ?? "")
const { lunr } = worker

// lunr 2.3.9 tells nodes of its dictionary apart by label and number without a mark between: a node with the branches
// 1 -> 1 and 2 -> 3 passes for one with 1 -> 123. A text full of numbers loses words by that, with an error in each
// search.
/** @this {{final: boolean, edges: Record<string, {id: number}>}} */
lunr.TokenSet.prototype.toString = function () {
  const edges = Object.keys(this.edges).sort().map(label => `${label}${this.edges[label].id},`)
  return (this.final ? "1" : "0") + edges.join("")
}

const build = lunr.Builder.prototype.build
lunr.Builder.prototype.build = function () {
  const index = build.call(this)
  learn(index)
  return index
}
