// What Material leaves to a screen reader or keyboard user to guess.
addEventListener("load", () => {
  const name = (selector, label) => document.querySelectorAll(selector).forEach((element, n) => { element.ariaLabel ||= `${label} ${n + 1}` })
  name("nav.md-code__nav", "Code")
  name(".md-search[role=dialog]", "Search")
  document.querySelectorAll(".md-typeset__scrollwrap, .evidence-table, .nb-output, .highlight code").forEach(element => {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0
  })
})
