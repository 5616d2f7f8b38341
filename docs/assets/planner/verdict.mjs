// Does it fit: the three answers, and by how much.
import { number, range } from "../shared/numbers.mjs"

/** @import { FullFit } from "./types.js" */

const SAID = { fits: "It fits", maybe: "It may fit", no: "It does not fit" }

/**
 * The verdict and its reason.
 * @param {FullFit} found
 * @param {boolean} ofSeveral whether each of several GPUs holds so much
 */
export const verdictOf = (found, ofSeveral) => {
  const { fit, expected_gib: expected, high_gib: high, gpu_gib: size, margin_gib: margin } = found
  const missing = `${number(-margin)} GiB are missing`
  const reasons = {
    fits: () => `${number(margin)} GiB are left`,
    maybe: () => found.why.code === "system"
      ? `that is ${number(-margin)} GiB more than the system leaves the GPU, and it can be told to leave more`
      : `in the worst case ${missing}`,
    no: () => missing
  }
  const where = ofSeveral ? " on each GPU" : ""
  return {
    said: SAID[fit],
    reason: `: ${range(expected, high)} of ${number(size)} GiB${where}; ${reasons[fit]()}.`
  }
}

/** @param {number} hours In days, where they are many. */
export const days = hours => hours > 48 ? `, ${number(hours / 24)} days` : ""
