// The worker in which Python runs, started when it is first needed. Numbers tell apart what it answers.
import { siteRoot } from "../shared/dom.mjs"

/** @import { Named } from "./types.js" */

/**
 * @typedef {object} Reply
 * @property {number} id of the question
 * @property {"first" | "ask" | "row" | "in_words" | "loading"} kind
 * @property {any} asked words of a command; of a model the text of its file
 * @property {any} answer
 * @property {Named} [model]
 * @property {number} [loaded] bytes of Python
 * @property {number} [size]
 */

/**
 * @typedef {object} Tell whoever asked
 * @property {(reply: Reply) => void} answered
 * @property {(reply: Reply) => void} row of a table
 * @property {(reply: Reply) => void} read the sizes in a config.json
 * @property {(megabytes: string) => void} loading
 * @property {(message: string | undefined) => void} failed
 */

/** @param {Tell} tell */
export const pythonOf = tell => {
  let last = 0
  /** @type {Worker | undefined} */
  let worker

  /** @param {Reply} reply */
  const said = reply => {
    const { kind, loaded = 0, size = 0 } = reply
    if (kind === "row") tell.row(reply)
    else if (kind === "in_words") tell.read(reply)
    else if (kind !== "loading") tell.answered(reply)
    else if (size) tell.loading([loaded, size].map(bytes => (bytes / 1e6).toFixed(1)).join(" of "))
  }

  const start = () => {
    if (worker) return worker
    worker = new Worker(new URL("assets/planner-worker.mjs", siteRoot()), { type: "module" })
    worker.addEventListener("message", ({ data }) => said(data))
    worker.addEventListener("error", event => tell.failed(event.message))
    return worker
  }

  return {
    start,
    isStarted: () => worker !== undefined,
    /** A number for what is asked next: the worker drops older questions. */
    next: () => {
      last += 1
      return last
    },
    /** @param {Reply["kind"]} kind @param {string[] | string} asked @param {number} id */
    send: (kind, asked, id) => start().postMessage({ id, kind, asked })
  }
}
