// What Material leaves to a screen reader or keyboard user to guess.
{
  const name = (selector, label) => document.querySelectorAll(selector).forEach((element, n) => { element.ariaLabel ||= `${label} ${n + 1}` })
  const reachable = () => document.querySelectorAll(".md-typeset__scrollwrap, .highlight code").forEach(element => {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0
  })
  addEventListener("load", () => {
    name("nav.md-code__nav", "Code")
    name(".md-search[role=dialog]", "Search")
    reachable()
  })
  document.addEventListener("toggle", reachable, true) // what an opened <details> holds had no width before
}
