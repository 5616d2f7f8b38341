// The order of what was found. Material multiplies a score by 1 + (1 for a page, 0 for a section + share of the words
// found)^2, so that a page with "train" in its title goes before the section that has all words. Here a page counts
// half, and a word counts by how rare it is.
import { saysLittle } from "./vocabulary.mjs"

/** @typedef {{score: number, terms: Record<string, boolean>, parent?: unknown}} Item parent: the page of a section */

const SECOND = .1 // of the score of a page's other sections, which counts too
const OTHERS = 2 // of them

/**
 * @template {Item} T
 * @param {T} item @param {Record<string, string>} forms of the query @param {(word: string) => number} weight of a word
 * @returns {T}
 */
export const rescored = (item, forms, weight) => {
  const { score, terms, parent } = item, isPage = Number(!parent)
  const asked = Object.entries(terms).filter(([word]) => !Object.hasOwn(forms, word) && !saysLittle(word))
  const share = asked.filter(([, found]) => found).length / (asked.length || 1)
  const all = asked.reduce((sum, [word]) => sum + weight(word), 0)
  const rare = asked.reduce((sum, [word, found]) => sum + Number(found) * weight(word), 0) / (all || 1)
  return { ...item, score: score / (1 + (isPage + share) ** 2) * (1 + (isPage / 2 + rare) ** 2) }
}

/**
 * @template {Item} T
 * @param {T[][]} groups pages with their sections @param {Record<string, string>} forms
 * @param {(word: string) => number} weight
 */
export const sorted = (groups, forms, weight) => {
  /** @param {T[]} group */
  const total = ([best, ...others]) =>
    others.slice(0, OTHERS).reduce((sum, one) => sum + SECOND * one.score, best.score)
  /** @param {T[]} group */
  const byScore = group =>
    group.map(item => rescored(item, forms, weight)).sort((one, other) => other.score - one.score)
  return groups.map(byScore).sort((one, other) => total(other) - total(one))
}

/** @param {number} sections of all pages @param {number} having how many of them have a word: how rare it is */
export const rarity = (sections, having) => Math.max(0, Math.log((sections + 1) / (having + .5)))
