/** A section that answers a text, and the title of its page. */
export interface Answered {
  location: string
  title: string
  page: string
}

/** The form of the search. shell.js gives it `load`; find.js, which that loads, gives it the others. */
export interface SearchForm extends HTMLFormElement {
  load: () => HTMLScriptElement
  ask?: (query: string) => Promise<Answered[]>
  parts: (location: string) => Promise<Element[]>
}
