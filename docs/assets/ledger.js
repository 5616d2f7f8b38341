// The ledger: shows the claims that the form asks for. ?page=training/one-gpu in the address fills the form, which
// keeps its address, and #one_gpu-one-pair leads to a claim.
import { isAsked } from "./ledger/claims.mjs"
import { make, the } from "./shared/dom.mjs"

/** @import { Claim } from "./ledger/claims.mjs" */

const form = the("#ledger-filter", HTMLFormElement), found = the("output", HTMLOutputElement, form)
const contents = the("details:has(> .contents)")
/** @type {NodeListOf<HTMLDetailsElement>} */
const all = document.querySelectorAll("details.fold")
const folds = [...all].map(fold => (
  { fold, rows: [...fold.querySelectorAll("tr")].filter(row => row.closest("tbody")) }))

/** @param {HTMLTableRowElement} row @returns {Claim} */
const claimOf = row => {
  const [claim, value, kind, machine, pages] = [...row.cells].map(cell => cell.textContent.trim().toLowerCase())
  return { claim, value, kind, machine, pages }
}

const given = () => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]))

/** @param {HTMLElement} fold A fold, and what stands before it up to its heading. */
const withHeading = fold => {
  /** @type {HTMLElement[]} */
  const parts = []
  /** @type {Element | null} */
  let part = fold
  while (part instanceof HTMLElement) {
    parts.push(part)
    part = part.tagName === "H2" ? null : part.previousElementSibling
  }
  return parts
}

const filter = () => {
  const asked = given(), isFiltered = Object.values(asked).some(Boolean)
  let count = 0
  for (const { fold, rows } of folds) {
    for (const row of rows) row.hidden = !isAsked(claimOf(row), asked)
    const shown = rows.filter(row => !row.hidden).length
    count += shown
    fold.open = isFiltered && shown > 0
    for (const part of withHeading(fold)) part.hidden = !shown
  }
  contents.hidden = isFiltered // it would lead to what is hidden
  const claims = count ? `${count} claim${count === 1 ? "" : "s"}` : "No claim: take a word or a choice away"
  found.value = isFiltered ? claims : ""
  const address = new URL(location.href)
  for (const [name, value] of Object.entries(asked)) {
    if (value) address.searchParams.set(name, value)
    else address.searchParams.delete(name)
  }
  if (address.href !== location.href) history.replaceState(history.state, "", address) // so that it can be sent
}

for (const row of folds.flatMap(({ rows }) => rows)) {
  const link = the("a", HTMLAnchorElement, row), [, notebook, claim] = link.href.match(/([^/]+)\/#claim-(.+)$/) ?? []
  row.id = `${notebook}-${claim}`
  link.before(make("code", {}, claim), make("br"))
}
if (location.hash.includes("-")) location.replace(location.hash) // now that the row has its name
for (const [name, value] of new URLSearchParams(location.search)) {
  const field = form.elements.namedItem(name)
  if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = value
}
form.addEventListener("input", filter)
form.addEventListener("submit", event => event.preventDefault())
if (location.search) filter()
