// The header: which colors, which machine, and the search, whose script and index are fetched when somebody searches.
{
  const root = document.documentElement
  const stored = name => { try { return localStorage.getItem(name) ?? "" } catch { return "" } }
  const store = (name, value) => { try { localStorage.setItem(name, value) } catch {} }
  const choose = (name, value) => { if (value) root.dataset[name] = value; else delete root.dataset[name] }

  document.getElementById("scheme").addEventListener("click", () => {
    const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
    choose("scheme", dark ? "light" : "dark")
    store("scheme", root.dataset.scheme)
  })

  // The machine that figures were measured on, and the GPU that they are predicted for: only those that the page has, and
  // only where there are two. The first is what the page shows without a choice.
  // `?gpu=t4` in the address of a page that has the T4 goes before what was chosen, and what is chosen stands there to be shared.
  const choices = { machine: "[data-on]", gpu: "[data-for]" }
  const asked = () => new URLSearchParams(location.search)
  const chosen = name => offered[`${name}s`]?.split(" ").includes(asked().get(name)) ? asked().get(name) : stored(name)
  const share = (name, value) => {
    const words = asked()
    words.set(name, value)
    history.replaceState(history.state, "", `?${words}${location.hash}`)
  }
  const offered = document.querySelector(".verified")?.dataset ?? {}
  const show = (name, value) => {
    choose(name, value) // what a page does not have, it shows as the first (evidence/site/context.py)
    const select = document.getElementById(name) // absent while there is nothing to choose on the whole site
    if (!select) return
    select.value = value
    if (select.selectedIndex < 0) select.selectedIndex = 0
    const named = name === "gpu" && document.querySelector(".chosen-gpu")
    if (named && select.length) named.textContent = select.selectedOptions[0].text + (value && value !== select.value && called[value] ? `, as this page has no figures for ${called[value]}` : "")
    select.parentElement.hidden = select.length < 2 || !document.querySelector(`article ${choices[name]}`)
  }
  const called = Object.fromEntries([...document.querySelectorAll("#gpu option")].map(option => [option.value, option.text]))
  for (const name in choices) {
    const select = document.getElementById(name), names = offered[`${name}s`]?.split(" ") ?? []
    select?.replaceChildren(...names.flatMap(one => [...select.options].filter(option => option.value === one)))
    show(name, chosen(name))
    if (!stored(name) && chosen(name)) store(name, chosen(name)) // who follows an address goes on with its GPU
    select?.addEventListener("change", () => {
      const { value } = select
      show(name, value)
      store(name, value)
      share(name, value)
      // For those who cannot see that figures all over the page have changed
      document.querySelector(".md-header .said").textContent = `${select.parentElement.firstElementChild.textContent} ${select.selectedOptions[0].text}: figures of this page have changed`
    })
  }
  const again = () => {
    for (const name in choices) {
      if (offered[`${name}s`] && asked().has(name) && stored(name)) share(name, stored(name)) // the newest choice goes before the address
      show(name, chosen(name))
    }
    choose("scheme", stored("scheme"))
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

  // Who only tabs past the search box opens and fetches nothing.
  const open = document.getElementById("__search"), query = document.forms.search.elements.query
  const box = query.closest(".md-search"), script = document.getElementById("search-script")
  let loading
  const load = () => loading ??= document.head.appendChild(Object.assign(document.createElement("script"), { src: script.src }))
  const search = () => {
    open.checked = true
    load()
  }
  document.forms.search.load = load // for the paste box of Debugging
  const close = () => {
    open.checked = false
    const button = document.querySelector("[data-toggles=__search]");
    (button.checkVisibility() ? button : query).focus()
  }
  query.addEventListener("input", search)
  query.addEventListener("pointerdown", search)
  open.addEventListener("change", () => {
    if (!open.checked) return
    search()
    query.focus()
  })
  box.addEventListener("focusout", event => {
    if (event.relatedTarget && !box.contains(event.relatedTarget)) open.checked = false
  })
  addEventListener("keydown", event => {
    if (event.key === "Escape" && open.checked) return close()
    if (event.key === "Escape" && drawer.checked) return drawer.click()
    const typing = event.target.closest("input, select, textarea, [contenteditable]")
    const command = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey
    if (!command && (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey)) return
    event.preventDefault()
    search()
    query.focus()
  })
}
