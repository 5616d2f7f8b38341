// GPUs and models as people write them.

/** @import { Gpu, Offered } from "./types.js" */

/** @param {string} text A name in the letters and digits by which the lists of spellings know it. */
export const plain = text => text.toLowerCase().replace(/[^a-z0-9.]/g, "")

/**
 * A GPU in any spelling that dryrun knows: "A100" is the one that is sold most.
 * @param {Offered} offered @param {string} text @returns {Gpu | undefined}
 */
export const gpuOf = ({ gpus, spellings }, text) => {
  const key = plain(text), name = plain(Object.hasOwn(spellings.gpus, key) ? spellings.gpus[key] : key)
  return gpus.find(one => [plain(one.name), plain(one.label)].includes(name))
}

/**
 * @param {Offered} offered
 * @param {string} text
 * @returns {string | undefined} the name of a model that has files of answers
 */
export const modelOf = ({ spellings }, text) => {
  const key = plain(text.split("/").at(-1) ?? "")
  return Object.hasOwn(spellings.models, key) ? spellings.models[key] : undefined
}

const COMPUTER = /^\s*(?:macbook|i?mac)\s+(?!(?:pro|air|studio|mini)\s*$)(?:(?:pro|air|studio|mini)\s+)?/i
const COUNTED = /^\s*(\d{1,4})\s*[x×*]\s*(\S.*)$/i
const WITH_MEMORY = /^(.*\S)\s+(\d{1,4})\s*GB?$/i

/**
 * "8 x A100" and "M4 Max 64 GB" belong into two fields: what each field gets.
 * @param {Offered} offered @param {string} typed @returns {Record<string, string>}
 */
export const splitGpu = (offered, typed) => {
  const gpu = typed.replace(COMPUTER, ""), [, gpus, one] = gpu.match(COUNTED) ?? []
  if (gpus && gpuOf(offered, one)) return { gpu: one, gpus }
  const [, chip, memory] = gpu.match(WITH_MEMORY) ?? []
  return memory && !gpuOf(offered, gpu) && gpuOf(offered, chip)?.trains === false ? { gpu: chip, memory } : { gpu }
}

/** @param {string} text @returns {string[]} Its words, and its billions of parameters. */
const wordsOf = text => text.toLowerCase().match(/[\d.]+b\b|[a-z]+|[\d.]+/g) ?? []
const MOST = 8 // names that are offered instead of an unknown one

/**
 * The names that share most with what was typed.
 * @template {{name: string, label?: string}} T
 * @param {string} text @param {T[]} all
 */
export const near = (text, all) => {
  const wanted = wordsOf(text)
  /** @param {T} one */
  const score = one => {
    const has = wordsOf(`${one.name} ${one.label ?? ""}`)
    /** @param {string} word */
    const worth = word => has.includes(word) ? 2 : word.length > 2 && has.some(other => other.startsWith(word)) ? 1 : 0
    return wanted.reduce((sum, word) => sum + worth(word), 0)
  }
  const most = Math.max(1, ...all.map(score))
  return all.filter(one => score(one) === most).slice(-MOST)
}
