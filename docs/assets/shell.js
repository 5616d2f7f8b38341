// The header: which colors, which machine, and the search, whose script and index are fetched when somebody searches.
import "./shell/choices.mjs"
import "./shell/drawer.mjs"
import "./shell/search.mjs"
