// Which table is shown: its rows as they come, its order and prices, and that the address carries it.
import { make } from "../shared/dom.mjs"
import { readTable, withTable } from "./address.mjs"
import { short } from "./command.mjs"
import { drawTable } from "./table.mjs"

/** @import { Question } from "./question.mjs" */
/** @import { Gpu, Judged, Refusal, Row } from "./types.js" */

/**
 * @typedef {object} Around what the table needs of the page
 * @property {() => number} next a number for its rows: those of an earlier table are of another question
 * @property {(words: string[], id: number) => void} send
 * @property {(search: string) => void} show the address
 * @property {(refused: Refusal) => string} inPage
 * @property {() => number} tokens of the reader's data; 0 where that is not said
 */

/** @param {Question} question @param {string} axis The words that ask for each row. */
export const questions = (question, axis) => {
  const isOfGpus = axis === "gpu", { gpus, models } = question.offered
  const names = isOfGpus ? gpus.filter(one => question.infer || one.trains) : models
  return names.map(({ name }) => {
    const words = short(question)
    for (const ofOneMachine of isOfGpus ? ["--memory", "--ran"] : []) {
      const at = words.indexOf(ofOneMachine)
      if (at >= 0) words.splice(at, 2)
    }
    words[isOfGpus ? words.indexOf("--gpu") + 1 : 1] = name
    return words
  })
}

/** @param {Around} around */
export const comparisonOf = around => {
  let id = 0 // of its rows; 0 while there is no table
  /** @type {string | undefined} The axis of the table that the address or the question before had. */
  let linked
  let axis = "gpu", by = "rate"
  /** @type {Refusal | undefined} The first row that is left out. */
  let leftOut
  /** @type {Record<string, string>} Of a GPU hour, by GPU: the reader's own. */
  let prices = {}
  /** @type {Row[]} */
  let rows = []
  /** @type {Question | undefined} */
  let question

  const place = () => document.getElementById("planner-table")
  const share = () => around.show(withTable(location.search, { axis, by, prices }))

  const draw = () => {
    const table = place(), typing = document.activeElement
    if (!table || !question) return
    const held = typing instanceof HTMLElement && table.contains(typing) && typing.dataset.key
    const priced = { question, axis, tokens: around.tokens(), prices }
    drawTable(table, { priced, rows, by, leftOut: leftOut ? around.inPage(leftOut) : "" }, {
      sorted: chosen => {
        by = chosen
        share()
        draw()
      },
      typed: share,
      left: drawUnlessTyping
    })
    /** @type {NodeListOf<HTMLElement>} */
    const keyed = table.querySelectorAll("[data-key]")
    if (held) [...keyed].find(one => one.dataset.key === held)?.focus({ preventScroll: true })
  }
  /** A table that is made again would take the cursor from a price that is being typed. */
  const drawUnlessTyping = () => { if (id && !document.activeElement?.matches("#planner-table input")) draw() }

  /** @param {string} of the axis: asks for every row */
  const ask = of => {
    if (!question) return
    rows = []
    leftOut = undefined
    axis = of
    linked = undefined
    id = around.next()
    share()
    for (const words of questions(question, axis)) around.send(words, id)
  }

  /** @param {string} text @param {string} of */
  const button = (text, of) => {
    const element = make("button", { type: "button", className: "md-button" }, text)
    element.addEventListener("click", () => ask(of))
    return element
  }

  return {
    /** @param {number} of Whether rows of this number are its own. */
    isOf: of => of === id,
    /** @param {string} search The table of an address. @param {Gpu[]} gpus */
    read: (search, gpus) => {
      const given = readTable(search, gpus)
      id = 0
      linked = given.axis
      by = given.by ?? "rate"
      prices = given.prices
    },
    /** Ends the rows of the question before; its table is made again for the next one. */
    again: () => {
      if (id) linked = axis
      id = 0
    },
    /** @param {Question} asked The buttons that ask for a table, and its place. */
    offer: asked => {
      question = asked
      return make("div", {}, make("h2", {}, "The same as a table"), button("on every GPU", "gpu"),
        button("every model on this GPU", "model"), make("div", { id: "planner-table" }))
    },
    /**
     * @param {boolean} more Asks for the table of the address once the answer is whole; draws what there is in its new
     * place.
     */
    show: more => {
      if (linked && !more && place()) ask(linked)
      else if (id) draw()
    },
    /** @param {string[]} words @param {Judged | Refusal} found */
    add: (words, found) => {
      if ("error" in found) leftOut ||= found
      else rows.push({ ...found, name: axis === "model" ? words[1] : words[words.indexOf("--gpu") + 1] })
      drawUnlessTyping()
    }
  }
}
