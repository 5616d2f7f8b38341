// Whether a row has the words that somebody types above a table.

/** @param {string} text */
const joined = text => text.replace(/[\s-]+/g, "")

/** @param {string} asked @returns {(text: string) => boolean} */
export const matcher = asked => {
  const plain = asked.toLowerCase().replace(/(\d)\s+(gi?b\b)/g, "$1$2") // 24 GB is one word
  const words = plain.split(/\s+/), whole = joined(plain)
  return text => {
    const lower = text.toLowerCase()
    return words.every(word => lower.includes(word)) || joined(lower).includes(whole) // "rtx4090" is RTX 4090
  }
}
