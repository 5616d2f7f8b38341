// What was found, page by page, with the passages that tell most.
import { make, parsed } from "../shared/dom.mjs"
import { beginning } from "../shared/words.mjs"
import { better, pageOf, passage } from "./sections.mjs"

/** @import { Found, Section } from "./sections.mjs" */

const TEASER = 200 // letters of a section's first sentence
const TEASERS = 5 // results that are looked into
const MORE = 2 // other sections of a page

/** @param {string} html The index holds HTML of the pages: its text. */
export const plain = html => parsed(html).body.textContent ?? ""

/** @param {string} text @param {string[]} words */
const marked = (text, words) => words.length
  ? text.split(beginning(words)).map((part, number) => number % 2 ? make("mark", {}, part) : part) : [text]

/** @param {Node} heading */
const isPart = heading => heading instanceof Element && !/^H[1-6]$/.test(heading.tagName)

/** @param {URL} root of the site @param {Map<string, Section>} sections */
export const results = (root, sections) => {
  /** @type {Map<string, Promise<Document>>} */
  const pages = new Map()

  /** @param {string} address */
  const pageAt = address => {
    const kept = pages.get(address) ?? fetch(new URL(address, root)).then(answer => answer.text()).then(parsed)
    pages.set(address, kept)
    return kept
  }

  /** @param {string} location of a section: its elements, up to the next heading */
  const partsOf = async location => {
    const [address, anchor] = location.split("#"), page = await pageAt(address)
    const heading = anchor ? page.getElementById(anchor) : page.querySelector("article h1")
    /** @type {Element[]} */
    const parts = []
    for (let part = heading?.nextElementSibling; part && isPart(part); part = part.nextElementSibling) parts.push(part)
    return parts
  }

  /** @param {Section} section @param {string[]} words @param {(Node | string)[]} children */
  const link = (section, words, ...children) => {
    const address = new URL(section.location, root)
    address.searchParams.set("h", words.join(" ")) // page.js marks these words
    return make("a", { className: "md-search-result__link", href: address.href }, children)
  }

  /** @param {Found[]} group @param {string[]} words */
  const result = (group, words) => {
    const [best, ...others] = group.flatMap(({ location }) => sections.get(location) ?? [])
    const page = sections.get(pageOf(best.location)), isNotebook = best.location.startsWith("notebooks/")
    const title = best === page ? "" : plain(page?.title ?? "")
    const place = [title, isNotebook ? "notebook" : ""].filter(Boolean).join(", ")
    const more = others.filter(section => section !== page).slice(0, MORE)
    return make("li", { className: "md-search-result__item" },
      link(best, words, make("b", {}, marked(plain(best.title), words)), " ",
        ...(place ? [make("span", { className: "find-page" }, place)] : []),
        make("p", {}, marked(plain(best.text.split("\n")[0]).slice(0, TEASER), words))),
      more.map(section => link(section, words, plain(section.title))))
  }

  /** @param {Element[]} parts The texts of paragraphs, rows and items. */
  const textsOf = parts => parts
    .flatMap(part => part.matches("p") ? [part]
      : part.matches("ul, ol, .scroll") ? [...part.querySelectorAll("tr, li")] : [])
    .map(part => part instanceof HTMLTableRowElement ? [...part.cells] : [part])
    .map(cells => cells.map(cell => cell.textContent).join(" · ").replace(/\s+/g, " ").trim())

  /**
   * A teaser is the first sentence of its section. The page is fetched, and the teaser becomes the passage that has
   * most of the words.
   * @param {Element} list @param {Found[][]} groups @param {string[]} words @param {() => boolean} isOld
   */
  const lookInto = async (list, groups, words, isOld) => {
    const shown = [...list.children]
    await Promise.all(groups.slice(0, TEASERS).map(async ([best], number) => {
      const [said] = plain(best.text ?? sections.get(best.location)?.text ?? "").split("\n")
      const hit = better(said, textsOf(await partsOf(best.location)), words)
      if (hit && !isOld()) shown[number].querySelector("p")?.replaceChildren(...marked(passage(hit, words), words))
    }))
  }
  return { result, partsOf, lookInto }
}
