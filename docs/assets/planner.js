// The page your-model: makes the arguments of `dryrun` from the form, asks the worker, and shows what it says. The
// address carries the question. This file listens to the reader; what each part does stands in planner/.
import { make } from "./shared/dom.mjs"
import { read } from "./planner/address.mjs"
import { followers } from "./planner/follow.mjs"
import { formOf } from "./planner/form.mjs"
import { fillLists, showWholeLists } from "./planner/lists.mjs"
import { splitGpu } from "./planner/names.mjs"
import { ownModel } from "./planner/own.mjs"
import { sessionOf } from "./planner/session.mjs"
import { choices, firstAnswers } from "./planner/stored.mjs"

const PAUSE = 120 // milliseconds without typing
let waiting = 0

const form = formOf(), follow = followers(), session = sessionOf(form, () => own)
const own = ownModel(words => form.set({ model: words }), text => {
  if (!session.paste(text)) own.say("Press Ask first: it loads Python, which reads the file.")
})

const splitTypedGpu = () => form.set(splitGpu(session.lists.offered, session.question().text("gpu")))

const chosenGpu = () => { try { return localStorage.getItem("gpu") } catch { return null } }

const readAddress = () => {
  const { search } = location, { values, refused } = read(search, form.fields, form.takes), gpu = chosenGpu()
  form.set(values)
  session.refuseValues(refused)
  form.unfold()
  if (gpu && !new URLSearchParams(search).has("gpu")) form.set({ gpu })
  splitTypedGpu()
  session.table.read(search, session.lists.offered.gpus)
}

Promise.all([choices(), firstAnswers()]).then(([offered, firsts]) => {
  Object.assign(session.lists, { offered, firsts })
  fillLists(form, own.kind, offered)
  readAddress()
  session.ask()
}, error => {
  const text = `The lists of models and GPUs could not be fetched: ${error.message}. Load the page again.`
  session.pane.element.replaceChildren(make("p", {}, text))
})

form.element.addEventListener("submit", event => event.preventDefault())
form.control("gpu").addEventListener("change", () => {
  const before = form.values()
  splitTypedGpu()
  form.set(follow.onAnotherGpu(session.question()))
  const now = form.values()
  if (now.gpu !== before.gpu || now.weights !== before.weights) session.ask()
})
form.element.addEventListener("input", ({ target }) => {
  if (target === own.config) return
  const field = form.fields.find(({ name }) => form.control(name) === target)
  if (field) form.set(follow.typed(field.name, session.question()))
  clearTimeout(waiting)
  waiting = setTimeout(session.ask, PAUSE)
})
showWholeLists(form, session.ask)

session.pane.element.addEventListener("take", event => {
  history.pushState(null, "", location.href) // so that Back takes it back
  if (event instanceof CustomEvent) form.set(event.detail)
  session.take()
})
addEventListener("popstate", () => {
  if (session.isAtItsAddress()) return // a link within the page
  form.reset()
  readAddress()
  session.ask()
})
