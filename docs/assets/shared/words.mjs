// Words in a text.

/** @param {string} word */
const escaped = word => word.replaceAll(".", "\\.")

/** @param {string[]} words Matches the beginnings of words. */
export const beginning = words => new RegExp(`(?<![\\p{L}\\p{N}])(${words.map(escaped).join("|")})`, "giu")
