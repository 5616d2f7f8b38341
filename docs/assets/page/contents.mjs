// Where one is: in the contents beside the page, in the menu, and on a phone in a bar.
import { the } from "../shared/dom.mjs"

/** @type {NodeListOf<HTMLAnchorElement>} */
const contents = document.querySelectorAll(".md-sidebar--secondary a[href^='#']")
const links = new Map([...contents].map(link => [link.hash.slice(1), link]))
const headings = [...document.querySelectorAll("article :is(h2, h3, h4)[id]")].filter(heading => links.has(heading.id))

// On a phone the contents are in the drawer: a bar (theme/partials/path.html) says in which section one is, and opens
// them.
/** @type {HTMLDetailsElement | null} */
const bar = document.querySelector("details.here")
const said = bar?.querySelector("span"), unsaid = said?.textContent ?? ""
bar?.addEventListener("toggle", () => {
  if (!bar.open) return
  const nav = the("nav", HTMLElement, bar)
  nav.replaceChildren(the(".md-sidebar--secondary .md-nav__list").cloneNode(true))
  nav.querySelectorAll("nav").forEach(inner => inner.replaceWith(...inner.childNodes))
})
addEventListener("click", ({ target }) => {
  if (bar && target instanceof Element && (target.closest(".here a") || !target.closest(".here"))) bar.open = false
})
bar?.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return
  bar.open = false
  bar.querySelector("summary")?.focus()
})

/** @param {HTMLElement | undefined} link */
const intoSight = link => {
  const box = link?.closest(".md-sidebar__scrollwrap")
  if (!link || !box) return
  const top = link.getBoundingClientRect().top - box.getBoundingClientRect().top
  const isSeen = top >= 0 && top + link.offsetHeight <= box.clientHeight + 10
  if (!isSeen) box.scrollTop += top - box.clientHeight / 2 // a short menu, which all is in sight, stays
}
/** @type {NodeListOf<HTMLElement>} */
const pages = document.querySelectorAll(".md-sidebar--primary a.md-nav__link--active")
intoSight([...pages].at(-1)) // the page that one reads, in the menu

/** @type {HTMLAnchorElement | undefined} */
let current
const follow = () => {
  const passed = headings.findLast(heading => heading.getBoundingClientRect().top < innerHeight / 4)
  const link = passed && links.get(passed.id)
  if (link === current) return
  current?.classList.remove("md-nav__link--active")
  link?.classList.add("md-nav__link--active")
  intoSight(link)
  if (said) said.textContent = link?.textContent.trim() ?? unsaid
  current = link
}
let isWaiting = false
addEventListener("scroll", () => {
  if (isWaiting) return
  isWaiting = true
  requestAnimationFrame(() => {
    isWaiting = false
    follow()
  })
}, { passive: true })
follow()
