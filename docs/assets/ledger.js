// The ledger: shows the claims that the form asks for. ?page=training/one-gpu in the address fills the form, which keeps its address,
// and #one_gpu-one-pair leads to a claim.
{
  const form = document.getElementById("ledger-filter")
  const folds = [...document.querySelectorAll(".fold")].map(fold => ({ fold, rows: [...fold.querySelectorAll("tbody tr")] }))
  const text = cell => cell.textContent.trim().toLowerCase()
  const has = (cell, wanted) => !wanted || text(cell).includes(wanted)
  const filter = () => {
    const asked = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim().toLowerCase()]))
    const words = asked.words.split(/\s+/)
    const isAsked = ({ cells: [claim, value, kind, machine, pages] }) =>
      words.every(word => text(claim).includes(word)) && has(kind, asked.kind) && has(machine, asked.machine) &&
      (!asked.page || text(pages).split(", ").includes(asked.page)) &&
      (!asked.value || text(value).startsWith("does not apply") === (asked.value === "no"))
    const isFiltered = Object.values(asked).some(Boolean)
    let found = 0
    for (const { fold, rows } of folds) {
      const shown = rows.filter(row => !(row.hidden = !isAsked(row))).length
      found += shown
      fold.open = isFiltered && shown > 0
      for (let part = fold; part; part = part.tagName === "H2" ? null : part.previousElementSibling) part.hidden = !shown
    }
    document.querySelector("details:has(> .contents)").hidden = isFiltered // it would lead to what is hidden
    form.querySelector("output").value = !isFiltered ? "" : found ? `${found} claim${found === 1 ? "" : "s"}` : "No claim: take a word or a choice away"
    const address = new URL(location)
    for (const [name, value] of new FormData(form)) value.trim() ? address.searchParams.set(name, value.trim()) : address.searchParams.delete(name)
    if (address.href !== location.href) history.replaceState(history.state, "", address) // so that it can be sent
  }
  for (const { rows } of folds) for (const row of rows) {
    const link = row.querySelector("a"), [, notebook, claim] = link.href.match(/([^/]+)\/#claim-(.+)$/)
    row.id = `${notebook}-${claim}`
    link.before(Object.assign(document.createElement("code"), { textContent: claim }), document.createElement("br"))
  }
  if (location.hash.includes("-")) location.replace(location.hash) // now that the row has its name
  for (const [name, value] of new URLSearchParams(location.search)) if (form.elements[name]) form.elements[name].value = value
  form.addEventListener("input", filter)
  form.addEventListener("submit", event => event.preventDefault())
  if (location.search) filter()
}
