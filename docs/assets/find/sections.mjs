// The sections that the search knows: their texts, the order of pages, and what is quoted of them.
import { beginning } from "../shared/words.mjs"

/** @typedef {{location: string, title: string, text: string}} Section */
/** @typedef {{location: string, title?: string, text?: string}} Found a section as the worker names it */
/** @typedef {{docs: Section[], words: string, places: string, digits: string}} Index */

/** @param {string} location */
export const pageOf = location => location.split("#")[0]

/**
 * @param {Index} index Gives back the words of the sections, which evidence/site/search_index.py wrote by word, in any
 * order.
 */
export const putBack = ({ docs, words, places, digits }) => {
  /** @type {string[][]} */
  const texts = docs.map(() => [])
  const lists = places.split("\n"), more = digits.length - 64 // of the digits that say that another one follows
  let word = ""
  words.split("\n").forEach((end, number) => {
    word = [...word].slice(0, Number(end[0])).join("") + end.slice(1)
    let place = 0, above = 0
    for (const letter of lists[number]) {
      const digit = digits.indexOf(letter)
      if (digit >= 64) {
        above = above * more + digit - 64
        continue
      }
      place += above * 64 + digit
      above = 0
      texts[place].push(word)
    }
  })
  docs.forEach((section, number) => { section.text += `\n${texts[number].join(" ")}` })
}

/**
 * A notebook shares the title and the words of its guide, which explains them: it comes behind it.
 * @template {{location: string}} T
 * @param {T[][]} groups pages with their sections @param {(location: string) => string | undefined} titleOf a page
 */
export const guidesFirst = (groups, titleOf) => {
  /** @param {T[]} group */
  const title = ([best]) => titleOf(pageOf(best.location))
  /** @param {T[]} group */
  const isNotebook = ([best]) => best.location.startsWith("notebooks/")
  const behind = groups.filter((group, number) =>
    isNotebook(group) && groups.slice(number).some(other => !isNotebook(other) && title(other) === title(group)))
  return groups.filter(group => !behind.includes(group)).flatMap(group =>
    [group, ...behind.filter(notebook => !isNotebook(group) && title(notebook) === title(group))])
}

/** @param {string} query The name of a page as it was, of its whole address, too, as one pastes it from an old link. */
export const oldName = query => query.trim().toLowerCase().replace(/[?#].*$/, "").replace(/(\.html)?\/*$/, "")
  .replace(/^.*\/docs\/\w+\/(?:[^/]+\/)*(?=[\w-]+$)/, "")

/**
 * @param {Record<string, string[]>} bets the queries that a place answers
 * @param {string[]} common words, which every sentence has
 * @returns {(query: string) => string | undefined} the place that answers a query of the same words, in any order
 */
export const bestBets = (bets, common) => {
  const unsaid = new Set(common)
  /** @param {string} query */
  const wordsOf = query => {
    const words = query.toLowerCase().match(/[\p{L}\p{N}][\p{L}\p{N}.+]*/gu) ?? []
    const telling = words.filter(word => !unsaid.has(word))
    return (telling.length ? telling : words).sort().join(" ")
  }
  const places = new Map(Object.entries(bets).flatMap(([place, queries]) =>
    queries.map(query => [wordsOf(query), place])))
  return query => places.get(wordsOf(query))
}

/**
 * @param {Found[][]} groups pages with their sections
 * @param {string | undefined} first the section that answers, which goes before all others, and its page with it
 */
export const led = (groups, first) => {
  if (first === undefined) return groups
  /** @param {Found[]} group */
  const isOfPage = ([best]) => pageOf(best.location) === pageOf(first)
  const more = groups.filter(isOfPage).flat().filter(({ location }) => location !== first)
  return [[{ location: first }, ...more], ...groups.filter(group => !isOfPage(group))]
}

/** @param {string} text @param {string[]} words How many of the words it has. */
export const having = (text, words) => {
  const lower = text.toLowerCase()
  return words.filter(word => beginning([word]).test(lower)).length
}

const BEFORE = 40, AFTER = 160 // letters of a passage round its first word

/**
 * The part of a text round the first of the words.
 * @param {string} text @param {string[]} words
 */
export const passage = (text, words) => {
  const lower = text.toLowerCase(), places = words.map(word => lower.indexOf(word)).filter(at => at >= 0)
  const start = Math.max(0, Math.min(...places) - BEFORE), from = start && text.indexOf(" ", start) + 1
  return `${from ? "… " : ""}${text.slice(from, from + BEFORE + AFTER)}`
}

/**
 * @param {string} said what is shown of a section
 * @param {string[]} texts of it
 * @param {string[]} words One that has more of them.
 */
export const better = (said, texts, words) => {
  let best = "", most = having(said, words)
  for (const text of texts) {
    const count = having(text, words)
    if (count > most) [best, most] = [text, count]
  }
  return best
}

/** @param {number} found @param {Record<string, string>} instead words in place of typed ones */
export const summary = (found, instead) => {
  const changed = Object.entries(instead).map(([typed, word]) => `“${word}” for “${typed}”`).join(", ")
  const none = "No page has these words. Try an argument, a method or a part of the message"
  return `${found ? `${found} page${found > 1 ? "s" : ""}` : none}${changed ? `, with ${changed}` : ""}`
}
