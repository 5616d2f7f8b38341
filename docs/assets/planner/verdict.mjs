// Does it fit: the three answers, and by how much.
import { number, range } from "../shared/numbers.mjs"

/** @param {{fits: boolean, verdict: string}} found @returns {"fits" | "maybe" | "no"} */
export const state = found => found.fits ? "fits" : /may/.test(found.verdict) ? "maybe" : "no"

const SAID = { fits: "It fits", maybe: "It may fit", no: "It does not fit" }

/**
 * The verdict and its reason.
 * @param {{fits: boolean, verdict: string, expected_gib: number, high_gib: number, gpu_gib: number}} found
 * @param {boolean} ofSeveral whether each of several GPUs holds so much
 */
export const verdictOf = (found, ofSeveral) => {
  const { expected_gib: expected, high_gib: high, gpu_gib: size } = found
  const missing = `${number((expected > size ? expected : high) - size)} GiB are missing`
  const reasons = {
    fits: () => `${number(size - high)} GiB are left`,
    maybe: () => expected > size
      ? `that is ${number(high - size)} GiB more than the system leaves the GPU, and it can be told to leave more`
      : `in the worst case ${missing}`,
    no: () => missing
  }
  const now = state(found), where = ofSeveral ? " on each GPU" : ""
  return {
    state: now, said: SAID[now],
    reason: `: ${range(expected, high)} of ${number(size)} GiB${where}; ${reasons[now]()}.`
  }
}

/** @param {number} hours In days, where they are many. */
export const days = hours => hours > 48 ? `, ${number(hours / 24)} days` : ""
