// The words of the index, in order: which of them a reader's word is, or begins.

const SPELLINGS = [["is", "iz"], ["our", "or"], ["lis", "liz"], ["lled", "led"], ["lling", "ling"], ["que", "k"]]
const LETTERS = /^\p{L}+$/u
const ENDING = /(?:ing|ed|ible|able|ation|ions?|est|e?s)$/
const SHORTEST = 4 // letters of a word that may be mistyped
const STEM = 5 // letters of what a word begins with
const FORMS = 4 // times as many sections

/** @param {string} typed @param {string} word One letter more, less, other, or two that have changed places. */
export const isOneOff = (typed, word) => {
  if (Math.abs(typed.length - word.length) > 1 || typed === word) return false
  let from = 0, to = 0
  while (from < typed.length && typed[from] === word[from]) from++
  while (to < Math.min(typed.length, word.length) - from && typed.at(-1 - to) === word.at(-1 - to)) to++
  const a = typed.slice(from, typed.length - to), b = word.slice(from, word.length - to)
  return a.length <= 1 && b.length <= 1 || a.length === 2 && a[0] === b[1] && a[1] === b[0]
}

/**
 * @param {Map<string, number>} counts how many sections have a word
 * @param {Set<string>} common words, which the index leaves out
 */
export const dictionary = (counts, common) => {
  const words = [...counts.keys()].sort()

  /** @param {string} start The place of the first word from here on, by halves. */
  const placeOf = start => {
    let low = 0, high = words.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (words[middle] < start) low = middle + 1
      else high = middle
    }
    return low
  }

  /** @param {string} start */
  const begins = start => words[placeOf(start)]?.startsWith(start) ?? false

  /** @param {string} start How many sections have a word that begins so. */
  const having = start => {
    let sum = 0
    for (let at = placeOf(start); words[at]?.startsWith(start); at++) sum += counts.get(words[at]) ?? 0
    return sum
  }

  /** @param {string} word */
  const spelled = word => SPELLINGS.flatMap(([one, other]) => [word.replace(one, other), word.replace(other, one)])
    .find(other => other !== word && begins(other))

  /** @param {string} word The most frequent of those that are one off. */
  const mistyped = word => words
    .filter(other => other.length >= SHORTEST && isOneOff(word, other) && LETTERS.test(other))
    .sort((one, other) => (counts.get(other) ?? 0) - (counts.get(one) ?? 0)).at(0)

  /** @param {string} word tokenizing, initialized: what they begin with */
  const shorter = word => {
    for (let length = word.length - 1; length >= Math.max(STEM, word.length - STEM); length--) {
      if (begins(word.slice(0, length))) return word.slice(0, length)
    }
    return undefined
  }

  /** @param {string} word The word, or what it most probably is. */
  const known = word => {
    if (word.length < SHORTEST || common.has(word) || !LETTERS.test(word) || begins(word)) return word
    return spelled(word) ?? mistyped(word) ?? shorter(word) ?? word
  }

  /**
   * @param {string} word A form that pages hardly use (profiling) stands for those that they do (profiler, profile).
   */
  const ofForm = word => {
    const start = word.replace(ENDING, "")
    return start.length >= SHORTEST && having(start) > FORMS * having(word) ? start : word
  }

  /** @param {string} word 24gb, zero3: pages write two words. */
  const apart = word => {
    const parts = word.match(/^(\d+)(\p{L}{2,})$|^(\p{L}{2,})(\d+)$/u)
    return begins(word) || !parts ? [word] : parts.slice(1).filter(Boolean)
  }

  return { having, known, ofForm, apart, isCommon: /** @param {string} word */ word => common.has(word) }
}
