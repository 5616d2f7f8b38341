// What must be decided before the first paint: the colors, the machine and the GPU that the address names or the reader
// chose. In <head>.
const root = document.documentElement
/** @param {string} name */
const stored = name => { try { return localStorage.getItem(name) } catch { return null } }
root.className = "js"
const asked = new URLSearchParams(location.search)
for (const name of ["scheme", "machine", "gpu"]) {
  const value = (name !== "scheme" && asked.get(name)) || stored(name)
  if (value) root.dataset[name] = value
}
