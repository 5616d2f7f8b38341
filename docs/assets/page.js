// Reading a page: copy a block of code, open the tabs that one uses, see in the contents where one is, find the words that one searched for.
{
  const TELLING = 6 // words of a query that are marked: the rarest of the page

  document.querySelectorAll("article .highlight > pre").forEach(block => {
    if (block.closest(".nb-output")) return
    block.append(Object.assign(document.createElement("button"), { className: "copy", type: "button", textContent: "Copy" }))
  })
  addEventListener("click", async ({ target: button }) => { // those of the planner's commands too
    if (!button.matches?.("pre > .copy")) return
    const code = button.parentElement.querySelector("code").cloneNode(true)
    code.querySelectorAll(".note").forEach(mark => mark.remove())
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied" } catch { button.textContent = "Not allowed" }
    setTimeout(() => { button.textContent = "Copy" }, 2000)
  })

  // The tab that a reader takes opens wherever a set has one of its name, on this page and the next. The last choice wins.
  const chosen = () => { try { return JSON.parse(localStorage.getItem("tabs")) ?? [] } catch { return [] } }
  const labels = [...document.querySelectorAll(".tabbed-labels > label")]
  const open = name => labels.forEach(label => { if (label.textContent === name) label.control.checked = true })
  chosen().forEach(open)
  document.addEventListener("change", ({ target }) => {
    if (!target.closest(".tabbed-set")) return
    const name = target.labels[0].textContent, top = target.getBoundingClientRect().top
    open(name)
    scrollBy(0, target.getBoundingClientRect().top - top) // sets above may have become longer
    try { localStorage.setItem("tabs", JSON.stringify([...chosen().filter(other => other !== name), name].slice(-9))) } catch {}
  })

  const links = new Map([...document.querySelectorAll(".md-sidebar--secondary a[href^='#']")].map(link => [link.hash.slice(1), link]))
  const headings = [...document.querySelectorAll("article :is(h2, h3, h4)[id]")].filter(heading => links.has(heading.id))

  // On a phone the contents are in the drawer: a bar (theme/partials/path.html) says in which section one is, and opens them.
  const here = document.querySelector(".here"), said = here?.querySelector("span"), HERE = said?.textContent
  here?.addEventListener("toggle", () => {
    const nav = here.querySelector("nav")
    if (!here.open) return
    nav.replaceChildren(document.querySelector(".md-sidebar--secondary .md-nav__list").cloneNode(true))
    nav.querySelectorAll("nav").forEach(inner => inner.replaceWith(...inner.childNodes))
  })
  if (here) addEventListener("click", ({ target }) => { if (target.closest(".here a") || !target.closest(".here")) here.open = false })
  here?.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return
    here.open = false
    here.querySelector("summary").focus()
  })

  // The page that one reads is in sight in the menu, too.
  const page = [...document.querySelectorAll(".md-sidebar--primary a.md-nav__link--active")].at(-1)
  const into_sight = link => {
    const box = link?.closest(".md-sidebar__scrollwrap")
    if (!box) return
    const top = link.getBoundingClientRect().top - box.getBoundingClientRect().top
    if (top < 0 || top + link.offsetHeight > box.clientHeight + 10) box.scrollTop += top - box.clientHeight / 2 // a short menu, which all is in sight, stays
  }
  into_sight(page)

  let current
  const follow = () => {
    const passed = headings.findLast(heading => heading.getBoundingClientRect().top < innerHeight / 4)
    const link = links.get(passed?.id)
    if (link === current) return
    current?.classList.remove("md-nav__link--active")
    link?.classList.add("md-nav__link--active")
    into_sight(link)
    if (said) said.textContent = link?.textContent.trim() ?? HERE
    current = link
  }
  let waiting = false
  addEventListener("scroll", () => {
    if (waiting) return
    waiting = true
    requestAnimationFrame(() => { waiting = false; follow() })
  }, { passive: true })
  follow()

  // Material's search hands them on in ?h=. Its own marks would need the whole index again.
  const address = new URL(location), words = address.searchParams.get("h")?.match(/[\p{L}\p{N}_.]{2,}/gu) // one letter is in every word
  if (address.searchParams.has("h")) { // what one shares is the section
    address.searchParams.delete("h")
    history.replaceState(history.state, "", address)
  }
  if (words && CSS.highlights) {
    const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.map(word => word.replaceAll(".", "\\.")).join("|")})`, "giu")
    const texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT), found = new Highlight()
    while (texts.nextNode()) for (const { index, 0: word } of texts.currentNode.data.matchAll(pattern)) {
      const at = texts.currentNode
      found.add(new StaticRange({ startContainer: at, startOffset: index, endContainer: at, endOffset: index + word.length }))
    }
    const of = range => range.startContainer.data.slice(range.startOffset, range.endOffset).toLowerCase()
    const hits = Map.groupBy([...found], of), rare = [...hits.values()].sort((a, b) => a.length - b.length).slice(0, TELLING)
    found.clear()
    for (const range of rare.flat()) found.add(range) // of a long message the words that tell, not all of them
    CSS.highlights.set("found", found)
    for (const one of found) { // in a tab that is not open
      const block = one.startContainer.parentElement.closest(".tabbed-block"), set = block?.closest(".tabbed-set")
      if (set && ![...found].some(other => set.contains(other.startContainer) && other.startContainer.parentElement.checkVisibility()))
        set.querySelectorAll(":scope > input")[[...block.parentElement.children].indexOf(block)].checked = true
    }
  }

  const markdown = document.getElementById("as-markdown")
  markdown?.addEventListener("click", async event => {
    event.preventDefault()
    try {
      const text = fetch(markdown.href).then(answer => answer.ok ? answer.blob() : Promise.reject()).then(blob => new Blob([blob], { type: "text/plain" }))
      await navigator.clipboard.write([new ClipboardItem({ "text/plain": text })]) // a promise: Safari forgets the click while it waits
      markdown.dataset.said = "Copied"
      setTimeout(() => { delete markdown.dataset.said }, 2000)
    } catch { location = markdown.href }
  })
}
