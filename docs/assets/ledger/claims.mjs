// Which claims the form of the ledger asks for.

/**
 * @typedef {{claim: string, value: string, kind: string, machine: string, pages: string}} Claim a row, in small letters
 */

/** @param {Claim} row @param {Record<string, string>} asked by field of the form; "" where all are asked for */
export const isAsked = (row, asked) => {
  const { words, kind, machine, page, value } = Object.fromEntries(
    Object.entries(asked).map(([name, text]) => [name, text.toLowerCase()]))
  const applies = !row.value.startsWith("does not apply")
  return words.split(/\s+/).every(word => row.claim.includes(word)) &&
    row.kind.includes(kind) && row.machine.includes(machine) &&
    (!page || row.pages.split(", ").includes(page)) && (!value || applies === (value !== "no"))
}
