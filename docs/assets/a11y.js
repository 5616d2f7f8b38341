// What scrolls must be reachable by keyboard. What cannot scroll must not: it would be one more stop on the way.

/** @param {HTMLElement} element */
const reach = element => {
  const overflows = element.matches(".scroll") && element.scrollHeight > element.clientHeight + 1
  if (overflows || element.scrollWidth > element.clientWidth) element.tabIndex = 0
  else element.removeAttribute("tabindex")
}
const reachAll = () => {
  /** @type {NodeListOf<HTMLElement>} */
  const scrolling = document.querySelectorAll(".scroll, .highlight code")
  scrolling.forEach(reach)
}
addEventListener("load", reachAll)
addEventListener("resize", reachAll)
document.addEventListener("toggle", reachAll, true) // what an opened <details> holds had no width before
document.addEventListener("change", reachAll) // of the machine, or of a tab
