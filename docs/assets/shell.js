// The header: which colors, which machine, and the search, whose script and index are fetched when somebody searches.
{
  const root = document.documentElement
  const store = (name, value) => { try { localStorage.setItem(name, value) } catch {} }
  const choose = (name, value) => { if (value) root.dataset[name] = value; else delete root.dataset[name] }

  document.getElementById("scheme").addEventListener("click", () => {
    const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
    choose("scheme", dark ? "light" : "dark")
    store("scheme", root.dataset.scheme)
  })

  // The machine that figures were measured on, and the GPU that they are predicted for. A page that shows none of them asks nothing.
  const choices = { machine: "[data-on]", gpu: "[data-for]" }
  const show = (name, value) => {
    choose(name, value)
    const select = document.getElementById(name) // absent while there is nothing to choose on the whole site
    if (!select) return
    select.parentElement.hidden = !document.querySelector(`article ${choices[name]}`)
    select.value = value
    if (select.selectedIndex < 0 && value) show(name, "") // one that has no record any more
    else if (select.selectedIndex < 0) select.selectedIndex = 0
  }
  for (const name in choices) {
    show(name, root.dataset[name] ?? "")
    document.getElementById(name)?.addEventListener("change", event => { show(name, event.target.value); store(name, event.target.value) })
  }
  const again = () => {
    try {
      for (const name in choices) show(name, localStorage.getItem(name) ?? "")
      choose("scheme", localStorage.getItem("scheme"))
    } catch {}
  }
  addEventListener("storage", again) // chosen in another tab
  addEventListener("pageshow", event => { if (event.persisted) again() }) // on another page, before one came back to this

  const drawer = document.getElementById("__drawer")
  document.querySelectorAll("[data-toggles]").forEach(button => {
    button.addEventListener("click", () => document.getElementById(button.dataset.toggles).click())
  })
  drawer.addEventListener("change", () => {
    const to = drawer.checked ? ".md-sidebar--primary a" : "[data-toggles=__drawer]"
    document.querySelector(to).focus()
  })

  const open = document.getElementById("__search"), query = document.forms.search?.elements.query
  const load = source => new Promise((resolve, reject) => {
    document.head.append(Object.assign(document.createElement("script"), { src: source, onload: resolve, onerror: reject }))
  })
  const script = document.getElementById("search-script")
  let loading
  const search = () => loading ??= load(script.src)
  query?.addEventListener("focus", () => { open.checked = true; search() })
  open.addEventListener("change", () => { if (open.checked) query.focus() })
  addEventListener("keydown", event => {
    const typing = event.target.closest("input, select, textarea, [contenteditable]")
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || loading) return // then Material's own
    event.preventDefault()
    query.focus()
  })
  addEventListener("keydown", event => {
    if (event.key === "Escape" && drawer.checked) drawer.click()
  })
}
