// What must be decided before the first paint: the colors, the machine and the GPU that the reader chose. Loaded in <head>.
{
  const root = document.documentElement
  const stored = name => { try { return localStorage.getItem(name) } catch { return null } }
  root.className = "js"
  for (const name of ["scheme", "machine", "gpu"]) if (stored(name)) root.dataset[name] = stored(name)
}
