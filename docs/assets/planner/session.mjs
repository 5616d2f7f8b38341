// One reader's questions: what is asked of whom, in which order answers count, and what is shown of them.
import { savesData } from "../shared/dom.mjs"
import { write } from "./address.mjs"
import { answerParts, earlyParts, failedParts, offerParts } from "./answer.mjs"
import { hasPlan, plan, whole } from "./command.mjs"
import { comparisonOf } from "./comparison.mjs"
import { addressOf } from "./location.mjs"
import { paneOf } from "./pane.mjs"
import { refused as refusedPart } from "./parts.mjs"
import { pythonOf } from "./python.mjs"
import { questionOf } from "./question.mjs"
import { fieldOf, inPage } from "./refusal.mjs"
import { NOTHING, firstOf, storedAnswer } from "./stored.mjs"

/** @import { Form } from "./form.mjs" */
/** @import { OwnModel } from "./own.mjs" */
/** @import { Reply } from "./python.mjs" */
/** @import { Question } from "./question.mjs" */
/** @import { First } from "./stored.mjs" */
/** @import { InWords, Offered, Shown } from "./types.js" */

const REST = 500 // milliseconds without typing: what would help is many answers
const LOADING = "Loading Python, some 7 MB the first time …"

/** @param {Form} form @param {() => OwnModel} own */
export const sessionOf = (form, own) => {
  /** @type {{offered: Offered, firsts: First[]}} What can be asked, and answers that the site has. */
  const lists = { offered: NOTHING, firsts: [] }
  /** @type {Pick<Shown, "train" | "infer" | "plan">} */
  let found = {}
  /** @type {string[]} Of the address. */
  let refused = []
  let known = "", id = 0, resting = 0 // id: of the newest question
  let hasAnswered = false, wasTaken = false // wasTaken: a button of the answer asks
  let mayLoad = !savesData() // Python, without a click

  const pane = paneOf(), address = addressOf(), question = () => questionOf(form.values(), form.fields, lists.offered)
  /** @param {boolean} [more] @returns {Shown} */
  const shown = (more = false) => ({ ...found, question: question(), known, refused, more })
  const python = pythonOf({
    answered: reply => { if (reply.id === id) received(reply.kind, reply) },
    row: reply => { if (table.isOf(reply.id)) table.add(reply.asked, reply.answer) },
    read: reply => { if (own().isTyped(reply.asked)) pasted(reply.answer) }, // else another one was pasted meanwhile
    loading: megabytes => {
      if (pane.waiting()) pane.wait(`Loading Python, which answers the rest: ${megabytes} MB, once …`)
    },
    failed: message => pane.element.replaceChildren(...failedParts(shown(), message))
  })
  const table = comparisonOf({
    next: python.next,
    send: (words, row) => python.send("row", words, row),
    show: address.show,
    inPage: one => inPage(one, field => form.label(fieldOf(field, question()))),
    tokens: () => found.train && "tokens" in found.train ? found.train.tokens ?? 0 : 0
  })

  /** @param {string} text */
  const refuse = text => {
    form.mark()
    found = {}
    pane.show([refusedPart(text)])
  }

  const ask = () => {
    const now = question(), stored = hasAnswered ? undefined : firstOf(lists.firsts, now)
    form.show(now)
    address.show(write(now))
    found = {}
    if (!python.isStarted() && !mayLoad) return stored ? received("ask", stored) : offer()
    python.start()
    id = python.next()
    table.again()
    const unread = form.unread(now)
    if (unread) {
      refuse(unread.text)
      return unread.control.setAttribute("aria-invalid", "true")
    }
    if (stored) received("ask", stored)
    else if (hasAnswered) pane.age(true)
    else {
      pane.wait(LOADING)
      showEarly(now, id)
    }
    python.send(now.train ? "first" : "ask", whole(now), id)
  }

  const offer = () => pane.element.replaceChildren(...offerParts(shown(), () => {
    mayLoad = true
    pane.element.replaceChildren()
    ask()
  }))

  /** @param {Question} of @param {number} asked Memory and speed from the site's own files, before Python is here. */
  const showEarly = async (of, asked) => {
    const early = await storedAnswer(of)
    if (!early || hasAnswered || asked !== id) return
    pane.element.prepend(...earlyParts(of, early))
    pane.brief.show(early)
  }

  /** What would help, once nobody types. */
  const askForMore = () => {
    const now = question()
    python.send("ask", whole(now), id)
    if (hasPlan(now)) python.send("ask", plan(now), id)
  }

  /** @param {string} kind @param {Pick<Reply, "asked" | "answer" | "model"> | First} reply */
  const received = (kind, { asked, model, answer }) => {
    const [verb] = asked, more = kind === "first" && !("error" in answer), of = id
    if (more) {
      clearTimeout(resting)
      resting = setTimeout(() => { if (of === id) askForMore() }, REST)
    }
    found = { ...found, [verb]: answer }
    known = model?.name ?? "" // its own, where an alias was typed
    own().fill(model?.words ?? "")
    hasAnswered = true
    const now = shown(more)
    pane.show(answerParts(now, form, () => table.offer(now.question)), now.train ?? now.infer, more)
    table.show(more)
    if (!wasTaken || verb === "plan") return
    pane.leadToVerdict()
    wasTaken = false
  }

  /** @param {InWords} file the sizes of a config.json */
  const pasted = file => {
    own().read(file)
    if (file.model) {
      form.set({ model: file.model })
      return ask()
    }
    id = python.next() // an answer on its way is of another model
    refuse(`No answer: this config.json cannot be taken. ${file.error}`)
  }

  if (mayLoad) python.start() // it loads while the lists do
  return {
    lists, pane, table, question, ask,
    isAtItsAddress: address.isShown,
    /** @param {string[]} values of the address that are no choices of the form */
    refuseValues: values => { refused = values },
    take: () => {
      wasTaken = true
      ask()
    },
    /** @param {string} text of a config.json; false where Python waits for a click */
    paste: text => {
      const canRead = python.isStarted() || mayLoad
      if (canRead) python.send("in_words", text, id)
      return canRead
    }
  }
}
