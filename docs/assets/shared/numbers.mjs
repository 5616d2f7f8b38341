// Numbers as the pages write them.

/** @param {number} value @param {number} digits significant ones, below a hundred */
export const number = (value, digits = 3) =>
  value.toLocaleString("en-US", value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits })

/** @param {number} low @param {number} high */
export const range = (low, high) => `${number(low)} to ${number(high)}`
