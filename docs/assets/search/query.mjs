// A reader's words as a query. Material takes any of them for the beginning of one ("a", "in"), and a colon,
// parenthesis or dash of an error message for an operator. So: no common words, names in parts, and the word itself
// before what begins so.
import { MEANS, PLAIN, saysLittle } from "./vocabulary.mjs"

/** @typedef {ReturnType<typeof import("./dictionary.mjs").dictionary>} Dictionary */
/**
 * @typedef {object} Query
 * @property {string} text for lunr
 * @property {string[]} told the words that it asks for, to be marked
 * @property {Record<string, string>} instead words in place of mistyped ones
 * @property {Record<string, string>} forms what a word begins with, where pages hardly have the word
 */

const FRAME = /File "[^"]*", line \d+(, in \S+)?/g // of a traceback: its path and function are the reader's own
const NUMBER = /^[\d.]+$/ // no beginning of another: 30 is no 3090
const QUOTATION = /^(\s*"[^"]+")+\s*$/
const NAME = /^\s*[\w-]+(?:[_.-]+\w+)+\s*$/ // zero_to_fp32.py
const SHORT = 60 // characters: a message is longer

/** @param {string} pasted */
const cleaned = pasted => pasted.replace(FRAME, " ").replace(/n-gpu-layers/gi, "ngl")
  .replace(/^\s*out of memory\s*$/i, "CUDA out of memory") // else common words and "memory"

/** @param {string} query StaticCache: a static cache. */
const camel = query => query.length > SHORT ? []
  : [...query.matchAll(/\b[A-Z][a-z]+(?:[A-Z][a-z\d]+)+\b/g)]
    .flatMap(([name]) => name.split(/(?=[A-Z])/)).map(part => part.toLowerCase())

/**
 * @param {string} pasted @param {Dictionary} dictionary
 * @param {(names: string[]) => boolean} areTogether whether a section has all parts of a name
 * @returns {Query}
 */
export const rewrite = (pasted, dictionary, areTogether) => {
  const query = cleaned(pasted)
  /** @type {Record<string, string>} */
  const instead = {}
  const typed = (query.toLowerCase().match(/[\p{L}\p{N}_.]+/gu) ?? [])
    .flatMap(word => word.split(/_+|\.(?!\d)/)).filter(Boolean).flatMap(dictionary.apart)
  const telling = typed.filter(word => !dictionary.isCommon(word) && !/^\d$/.test(word)) // a rank's number says nothing
  const asked = (telling.length ? telling : typed).flatMap(word => {
    if (Object.hasOwn(PLAIN, word)) return PLAIN[word].split(" ")
    const known = dictionary.known(word)
    if (known !== word) instead[word] = known
    return known
  })
  const told = [...new Set(asked)]
  if (QUOTATION.test(query) || NAME.test(query) && areTogether(told)) { // a message may hold quotes
    return { text: told.map(word => `+${word}`).join(" "), told, instead, forms: {} }
  }
  const meant = told.filter(word => Object.hasOwn(MEANS, word)).flatMap(word => MEANS[word].split(" "))
  const begun = told.map(word => [word, dictionary.ofForm(word)])
  const forms = Object.fromEntries(begun.filter(([word, start]) => start !== word))
  /** @param {string} word */
  const weighed = word => {
    if (saysLittle(word)) return word
    const begins = Object.hasOwn(forms, word) ? forms[word] : word
    return NUMBER.test(word) ? `${word}^2` : `${word}^2 ${begins}`
  }
  return { text: [...asked.map(weighed), ...meant, ...camel(query)].join(" "), told, instead, forms }
}
