// The tab that a reader takes opens wherever a set has one of its name, on this page and the next. The last choice
// wins.

const KEPT = 9 // names

/** @returns {string[]} */
const chosen = () => { try { return JSON.parse(localStorage.getItem("tabs") ?? "[]") } catch { return [] } }
/** @type {NodeListOf<HTMLLabelElement>} */
const labels = document.querySelectorAll(".tabbed-labels > label")
/** @param {string | null} name */
const open = name => labels.forEach(({ textContent, control }) => {
  if (textContent === name && control instanceof HTMLInputElement) control.checked = true
})
chosen().forEach(open)
document.addEventListener("change", ({ target }) => {
  if (!(target instanceof HTMLInputElement) || !target.closest(".tabbed-set")) return
  const name = target.labels?.[0].textContent ?? "", { top } = target.getBoundingClientRect()
  open(name)
  scrollBy(0, target.getBoundingClientRect().top - top) // sets above may have become longer
  const names = [...chosen().filter(other => other !== name), name].slice(-KEPT)
  try { localStorage.setItem("tabs", JSON.stringify(names)) } catch {}
})
