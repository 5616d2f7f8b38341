// Elements of a page: finding those that it must have, and making new ones.

/**
 * @typedef {Node | string | null | undefined | false | 0 | Part[]} Part What an element may hold: nothing is left out.
 */

/**
 * Makes an element. Its parts are flattened, so that a list of parts can stand among them.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Partial<HTMLElementTagNameMap[K]>} properties
 * @param {Part[]} parts
 * @returns {HTMLElementTagNameMap[K]}
 */
export const make = (name, properties = {}, ...parts) => {
  const element = Object.assign(document.createElement(name), properties)
  element.append(...flat(parts))
  return element
}

/** @param {Part[]} parts @returns {(Node | string)[]} Without what is missing. */
export const flat = parts => parts.flatMap(part => Array.isArray(part) ? flat(part) : part ? [part] : [])

/**
 * The element that the page is built with. An error names the selector of one that it lacks.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {new () => T} type
 * @param {ParentNode} within
 */
export const the = (selector, type = /** @type {any} */ (HTMLElement), within = document) => {
  const found = within.querySelector(selector)
  if (!(found instanceof type)) throw new Error(`no ${type.name} ${selector}`)
  return found
}

/** The settings that Material's template writes into every page. */
export const settings = () => JSON.parse(the("#__config", HTMLScriptElement).text)

/** The address of the site's overview. The base of the 404 page ends in a slash. */
export const siteRoot = () => new URL(`${settings().base.replace(/\/$/, "")}/`, location.href)

/** @param {string} html Parsed apart from the page, none of it runs. */
export const parsed = html => new DOMParser().parseFromString(html, "text/html")

/** Whether the reader's browser asks for small downloads. */
export const savesData = () => {
  /** @type {Navigator & {connection?: {saveData?: boolean}}} */
  const { connection } = navigator
  return connection?.saveData === true
}
