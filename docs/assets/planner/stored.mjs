// Answers that the site has before Python is there: planner/first.json, and answers/MODEL/GPU.json for common
// questions.
import { siteRoot } from "../shared/dom.mjs"
import { meaning, whole } from "./command.mjs"
import { modelOf } from "./names.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Judged, Named, Offered, Refusal, Serving, Training } from "./types.js" */
/** @typedef {{asked: string[], model: Named, answer: Training | Serving | Refusal}} First */

/** @type {Offered} Before the lists are there. */
export const NOTHING = {
  models: [], memory: [], families: [], gpus: [], spellings: { models: {}, gpus: {} }, weights: [], networks: []
}

/** @param {string} name @returns {Promise<any>} */
const json = async name => (await fetch(new URL(name, siteRoot()))).json()

/** @returns {Promise<Offered>} */
export const choices = () => json("planner/choices.json")

/** @returns {Promise<First[]>} Without them the page waits for Python. */
export const firstAnswers = () => json("planner/first.json").catch(() => [])

/** @param {First[]} firsts @param {Question} question */
export const firstOf = (firsts, question) =>
  firsts.find(one => one.asked.join(" ") === whole(question).join(" "))

/** @typedef {Judged & {command: string, error?: string}} Stored */

/** @param {Stored[]} stored @param {string[]} words of the command, the model by its own name */
export const sameQuestion = (stored, words) => {
  const wanted = meaning(words)
  return stored.find(one => !one.error && meaning(one.command.split(" ").slice(1)) === wanted)
}

/** @param {Question} question @returns {Promise<Stored | undefined>} */
export const storedAnswer = async question => {
  const [verb, given, ...rest] = whole(question), model = modelOf(question.offered, given), gpu = question.gpu
  if (!model || !gpu) return undefined
  const file = await json(`answers/${model}/${gpu.name}.json`).catch(() => undefined)
  return file && sameQuestion(file.answers, [verb, model, ...rest])
}
