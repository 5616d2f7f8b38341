// Values that follow another field, as long as nobody has chosen them.
import { DEFAULTS } from "./command.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Values } from "./types.js" */

const ON_MACS = "q4_k_m" // the format of weights that is usually run where CPU and GPU share one memory
const OF_GRPO = "8" // answers to one prompt, as TRL's default has it

export const followers = () => {
  let batchFollows = false, weightsFollow = false // whether the batch is GRPO's; the format of the weights a Mac's

  /**
   * @param {string} name of a field in which somebody types @param {Question} question
   * @returns {Values} what changes with it
   */
  const typed = (name, question) => {
    const value = question.text(name)
    if (name === "batch") batchFollows = false
    if (name === "price") return { price: value.replace(",", ".") }
    if (name === "rows" && value) return { tokens: "" } // both say how much data there is
    if (name === "tokens" && value) return { rows: "" }
    const follows = question.grpo ? question.text("batch") === DEFAULTS.batch : batchFollows
    if (name !== "objective" || !follows) return {}
    batchFollows = question.grpo
    return { batch: question.grpo ? OF_GRPO : DEFAULTS.batch }
  }

  /** @param {Question} question with another GPU @returns {Values} */
  const onAnotherGpu = question => {
    const isShared = question.gpu?.trains === false, now = question.text("weights")
    const follows = isShared ? now === DEFAULTS.weights : weightsFollow && now === ON_MACS
    const weights = follows ? isShared ? ON_MACS : DEFAULTS.weights : now
    weightsFollow = isShared && weights === ON_MACS && (weightsFollow || now === DEFAULTS.weights)
    return { weights, measured: "", ran: "" } // what ran elsewhere says nothing here
  }
  return { typed, onAnotherGpu }
}
