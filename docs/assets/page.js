// Reading a page: copy a block of code, open the tabs that one uses, see in the contents where one is, find the words
// that one searched for.
import "./page/copy.mjs"
import "./page/tabs.mjs"
import "./page/contents.mjs"
import "./page/marks.mjs"
