// The choices of the header: colors, the machine that figures were measured on, and the GPU that they are predicted
// for.
import { the } from "../shared/dom.mjs"

const root = document.documentElement
/** @param {string} name */
const stored = name => { try { return localStorage.getItem(name) ?? "" } catch { return "" } }
/** @param {string} name @param {string} value */
const store = (name, value) => { try { localStorage.setItem(name, value) } catch {} }
/** @param {string} name @param {string} value */
const choose = (name, value) => {
  if (value) root.dataset[name] = value
  else delete root.dataset[name]
}

the("#scheme").addEventListener("click", () => {
  const { scheme } = root.dataset
  const isDark = scheme ? scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
  choose("scheme", isDark ? "light" : "dark")
  store("scheme", isDark ? "light" : "dark")
})

// Only those machines and GPUs that the page has, and only where there are two. The first is what the page shows
// without a choice. `?gpu=t4` in the address of a page that has the T4 goes before what was chosen, and what is chosen
// stands there to be shared.
const PARTS = { machine: "[data-on]", gpu: "[data-for]" }
/** @type {["machine", "gpu"]} */
const NAMES = ["machine", "gpu"]
/** @type {HTMLElement | null} */
const verified = document.querySelector(".verified")

/**
 * @param {string} name
 * @returns {HTMLSelectElement | null} absent while there is nothing to choose on the whole site
 */
const list = name => document.querySelector(`select#${name}`)
/** @param {string} name What the page has. */
const offered = name => verified?.dataset[`${name}s`]?.split(" ")
const asked = () => new URLSearchParams(location.search)
/** @param {string} name */
const chosen = name => {
  const inAddress = asked().get(name)
  return inAddress && offered(name)?.includes(inAddress) ? inAddress : stored(name)
}
/** @param {string} name @param {string} value */
const share = (name, value) => {
  const words = asked()
  words.set(name, value)
  history.replaceState(history.state, "", `?${words}${location.hash}`)
}

/** @type {Record<string, string>} */
const called = Object.fromEntries([...list("gpu")?.options ?? []].map(option => [option.value, option.text]))

/**
 * @param {"machine" | "gpu"} name
 * @param {string} value What a page does not have, it shows as the first (evidence/site/context.py).
 */
const show = (name, value) => {
  choose(name, value)
  const select = list(name), label = select?.parentElement
  if (!select || !label) return
  select.value = value
  if (select.selectedIndex < 0) select.selectedIndex = 0
  const named = name === "gpu" && document.querySelector(".chosen-gpu"), isOther = value && value !== select.value
  if (named && select.length) {
    const other = isOther && called[value] ? `, as this page has no figures for ${called[value]}` : ""
    named.textContent = select.selectedOptions[0].text + other
  }
  label.hidden = select.length < 2 || !document.querySelector(`article ${PARTS[name]}`)
}

/** @param {HTMLSelectElement} select For those who cannot see that figures all over the page have changed. */
const say = select => {
  const label = select.parentElement?.firstElementChild?.textContent, { text } = select.selectedOptions[0]
  the(".md-header .said").textContent = `${label} ${text}: figures of this page have changed`
}

for (const name of NAMES) {
  const select = list(name), names = offered(name) ?? []
  select?.replaceChildren(...names.flatMap(one => [...select.options].filter(option => option.value === one)))
  show(name, chosen(name))
  if (!stored(name) && chosen(name)) store(name, chosen(name)) // who follows an address goes on with its GPU
  select?.addEventListener("change", () => {
    const { value } = select
    show(name, value)
    store(name, value)
    share(name, value)
    say(select)
  })
}

const again = () => {
  for (const name of NAMES) {
    const value = stored(name)
    if (offered(name) && asked().has(name) && value) share(name, value) // the newest choice goes before the address
    show(name, chosen(name))
  }
  choose("scheme", stored("scheme"))
}
addEventListener("storage", again) // chosen in another tab
addEventListener("pageshow", event => { if (event.persisted) again() }) // on another page, before one came back to this
