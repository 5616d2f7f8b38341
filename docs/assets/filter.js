// Tables in a `.filterable` box: a field above them leaves the rows that hold all of its words.
import { matcher } from "./filter/words.mjs"
import { make, the } from "./shared/dom.mjs"

addEventListener("DOMContentLoaded", () => document.querySelectorAll(".filterable").forEach(box => {
  const rows = [...the("tbody", HTMLTableSectionElement, box).rows]
  const field = make("input", { type: "search", autocomplete: "off" }), count = make("output")
  const show = () => {
    const matches = matcher(field.value)
    for (const row of rows) row.hidden = !matches(`${row.dataset.words ?? ""} ${row.textContent}`)
    count.value = ` ${rows.filter(row => !row.hidden).length} of ${rows.length}`
  }
  field.addEventListener("input", show)
  box.prepend(make("label", {}, "Show rows with ", field), count)
  show()
}))
