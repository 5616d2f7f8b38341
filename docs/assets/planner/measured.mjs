// Is the reader's own speed normal? Tokens per second or a part of the peak (MFU), as people write them.
import { number } from "../shared/numbers.mjs"

const HOW = "give tokens/s, such as 2000, or MFU, such as 22 %"
const RARE = 20 // times slower than expected: then 22 is a part of the peak

/** @typedef {{expected: number, low: number, high: number, mfu: number}} Expected */

/** @param {string} digits with commas or underscores @param {boolean} isPercent */
const amountOf = (digits, isPercent) => {
  const isDecimal = /^\d+,\d{1,2}$/.test(digits) || /^\d+,\d+$/.test(digits) && (isPercent || digits.startsWith("0"))
  return parseFloat(isDecimal ? digits.replace(",", ".") : digits.replace(/[,_ ]/g, ""))
}

/**
 * What to say of it; leads: whether it should lead to what takes the time; times: as long as expected, where it can be.
 * @param {string} text @param {Expected} of @returns {{said: string, leads?: string, times?: number}}
 */
export const judged = (text, { expected, low, high, mfu }) => {
  const [, digits, percent] = text.match(/^\s*(\d{1,3}(?: \d{3})+(?!\d)|[\d,._]*\d)\s*(%?)/) ?? []
  const amount = digits ? amountOf(digits, Boolean(percent)) : 0
  if (!amount) return { said: HOW }
  if (!percent && amount <= 100 && amount < expected / RARE) {
    const part = number(amount < 1 ? 100 * amount : amount)
    return { said: `${digits} tokens/s would be ${number(expected / amount)} times less than expected: ` +
      `for a part of the peak write ${part} %` }
  }
  const mine = percent ? amount / 100 / mfu * expected : amount
  const peak = number(100 * mfu * mine / expected, 2)
  const part = `${number(mine / expected)} times what is expected, ${peak} % of the peak: `
  if (mfu * mine / expected > 1) {
    return { said: `${part}more than this GPU computes: is it tokens of all GPUs, and of a second?` }
  }
  const times = expected / mine
  if (mine < low) return { said: `${part}slower than nine of ten such runs: `, leads: "what takes the time", times }
  return { said: `${part}${mine > high ? "faster than nine of ten such runs" : "normal"}`, times }
}
