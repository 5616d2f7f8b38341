// Tables in a `.filterable` box: a field above them leaves the rows that hold all of its words.
const joined = text => text.replace(/[\s-]+/g, "")
addEventListener("DOMContentLoaded", () => document.querySelectorAll(".filterable").forEach(box => {
  const rows = [...box.querySelector("tbody").rows]
  const label = Object.assign(document.createElement("label"), { textContent: "Show rows with " })
  const field = Object.assign(document.createElement("input"), { type: "search", autocomplete: "off" })
  const count = document.createElement("output")
  const show = () => {
    const asked = field.value.toLowerCase().replace(/(\d)\s+(gi?b\b)/g, "$1$2") // 24 GB is one word
    const words = asked.split(/\s+/), whole = joined(asked)
    rows.forEach(row => {
      const text = `${row.dataset.words ?? ""} ${row.textContent}`.toLowerCase()
      row.hidden = !words.every(word => text.includes(word)) && !joined(text).includes(whole) // "rtx4090" is RTX 4090
    })
    count.value = ` ${rows.filter(row => !row.hidden).length} of ${rows.length}`
  }
  label.append(field)
  field.addEventListener("input", show)
  box.prepend(label, count)
  show()
}))
