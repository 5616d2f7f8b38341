// A model of the reader's own: its sizes in fields, or its config.json in a box.
import { the } from "../shared/dom.mjs"
import { inWords, parsedSizes } from "./sizes.mjs"

/** @import { InWords } from "./types.js" */
/** @typedef {ReturnType<typeof ownModel>} OwnModel */

/**
 * @param {(words: string) => void} sized the model, in words
 * @param {(text: string) => void} pasted the text of a file
 */
export const ownModel = (sized, pasted) => {
  const element = the("#planner-own"), config = the("#planner-config", HTMLTextAreaElement)
  const kind = the("[data-size=kind]", HTMLSelectElement), tied = the("[data-size=tied]", HTMLInputElement)
  const numbers = [...element.querySelectorAll("input")].filter(one => one.type === "number")
  const said = the("#planner-own-said")

  /** @param {string} text */
  const say = text => { said.textContent = text }

  element.addEventListener("input", ({ target }) => {
    if (target !== config) {
      say("")
      const sizes = new Map(numbers.map(one => [one.dataset.size ?? "", one.value]))
      sized(inWords({ kind: kind.value, sizes, tied: tied.checked }))
    } else if (config.value.trim()) pasted(config.value)
  })

  /**
   * @param {string} words Of the model that was answered; "" of one that comes in one size: then the fields are empty.
   */
  const fill = words => {
    const typing = document.activeElement
    if (typing === config || typing instanceof HTMLElement && typing.dataset.size) return
    const given = parsedSizes(words)
    if (words) kind.value = given.kind
    for (const one of numbers) one.value = given.sizes.get(one.dataset.size ?? "") ?? ""
    tied.checked = given.tied
  }

  /** @param {InWords} found Says what became of the file. */
  const read = ({ error, left_out: leftOut, stored_in: storedIn }) => {
    const without = leftOut ? `, without its ${leftOut} part` : ""
    const stored = storedIn && ` Its weights are published in ${storedIn}: here they are of the kind that you choose.`
    say(error ?? `Its sizes are in the fields above${without}.${stored || ""}`)
    if (error) return
    config.value = ""
    config.blur()
  }
  return {
    config, kind, say, fill, read,
    /** @param {string} text Whether it still stands in the box. */
    isTyped: text => text === config.value
  }
}
