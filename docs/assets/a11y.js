// What scrolls must be reachable by keyboard. What cannot scroll must not: it would be one more stop on the way.
{
  const reachable = () => document.querySelectorAll(".scroll, .highlight code").forEach(element => {
    const taller = element.matches(".scroll") && element.scrollHeight > element.clientHeight + 1
    if (taller || element.scrollWidth > element.clientWidth) element.tabIndex = 0
    else element.removeAttribute("tabindex")
  })
  addEventListener("load", reachable)
  addEventListener("resize", reachable)
  document.addEventListener("toggle", reachable, true) // what an opened <details> holds had no width before
  document.addEventListener("change", reachable) // of the machine, or of a tab
}
