// The words that one searched for are marked. The search hands them on in ?h=; Material's own marks would need the
// whole index again.
import { the } from "../shared/dom.mjs"
import { beginning } from "../shared/words.mjs"

const TELLING = 6 // words of a query that are marked: the rarest of the page

/** @param {StaticRange} range @returns {string} */
const wordOf = ({ startContainer, startOffset, endOffset }) =>
  (startContainer.textContent ?? "").slice(startOffset, endOffset).toLowerCase()

/** @param {string[]} words Where they stand: of a long message the words that tell, not all of them. */
const places = words => {
  const texts = document.createTreeWalker(the("article"), NodeFilter.SHOW_TEXT), pattern = beginning(words)
  /** @type {StaticRange[]} */
  const found = []
  while (texts.nextNode()) {
    const node = texts.currentNode
    for (const { index, 0: word } of (node.textContent ?? "").matchAll(pattern)) {
      const startOffset = index, endOffset = index + word.length
      found.push(new StaticRange({ startContainer: node, startOffset, endContainer: node, endOffset }))
    }
  }
  const hits = [...Map.groupBy(found, wordOf).values()]
  return hits.sort((one, other) => one.length - other.length).slice(0, TELLING).flat()
}

/** @param {StaticRange[]} found Opens the tab of what is found in none that is open. */
const openTabs = found => {
  for (const one of found) {
    const block = one.startContainer.parentElement?.closest(".tabbed-block"), set = block?.closest(".tabbed-set")
    if (!block?.parentElement || !set) continue
    const isSeen = found.some(({ startContainer: node }) => set.contains(node) && node.parentElement?.checkVisibility())
    /** @type {NodeListOf<HTMLInputElement>} */
    const tabs = set.querySelectorAll(":scope > input")
    if (!isSeen) tabs[[...block.parentElement.children].indexOf(block)].checked = true
  }
}

const address = new URL(location.href)
const words = address.searchParams.get("h")?.match(/[\p{L}\p{N}_.]{2,}/gu) // one letter is in every word
if (address.searchParams.has("h")) { // what one shares is the section
  address.searchParams.delete("h")
  history.replaceState(history.state, "", address)
}
if (words && CSS.highlights) {
  const found = places(words)
  CSS.highlights.set("found", new Highlight(...found))
  openTabs(found)
}
