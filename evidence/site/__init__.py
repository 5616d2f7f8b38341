"""A record's way onto a page. MkDocs calls `hook`, and that calls the others. By what one looks for:

- a guide checked before it is built: `lint`, with `prose` (how a page is read), `figures`, `arithmetic`, `links`, `swaps`, `snippets`,
  `record_blocks`
- a guide rendered: `pages` (figures in sentences), `fences` (blocks of tables and drawings), with `context` (what a page knows), `charts`,
  `accelerators`, `diagrams/`, `popovers` (where figures come from), `notes`, `install`
- a notebook rendered: `notebook_pages`, `commits`
- what lies beside the pages: `addresses`, `redirects`, `best_bets`, `search_index`, `llms_txt`, `assets`, `planner`, `answers`; `node` runs what
  they take from npm
- files of the repository checked: `locks`, `hygiene`, `repository_docs`
- the built site in a browser: `browser`, `audit`
"""
