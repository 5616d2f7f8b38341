// The worker of the search: Material's, which the address names, with two changes. Runs only when somebody searches.
{
  // A reader's words. Material takes any of them for the beginning of one ("a", "in"), and a colon, parenthesis or dash of
  // an error message for an operator. So: no common words, names in parts, and the word itself before what begins so.
  const COMMON = new Set(("a about after all also am an and any are as at be because been but by can could did do does " +
    "for from get got had has have how i if in into is it its just like may me might my no not of on only or our out " +
    "should so some than that the their them then there these they this to too use used uses was we were what when where " +
    "which while who why will with without would you your").split(" "))

  const FRAME = /File "[^"]*", line \d+(, in \S+)?/g // of a traceback: its path and function are the reader's own

  const rewrite = pasted => {
    const query = pasted.replace(FRAME, " ")
    if (/^(\s*"[^"]+")+\s*$/.test(query)) return query // a quotation means all of its words; a message may hold quotes
    const words = query.toLowerCase().match(/[\p{L}\p{N}_.]+/gu)?.flatMap(word => word.split(/_+|\.(?!\d)/)).filter(Boolean) ?? []
    const telling = words.filter(word => !COMMON.has(word))
    return (telling.length ? telling : words).map(word => `${word}^2 ${word}`).join(" ")
  }

  const QUERY = 2
  addEventListener("message", ({ data }) => { if (data.type === QUERY) data.data = rewrite(data.data) }) // before Material's

  importScripts(new URLSearchParams(location.search).get("worker"))

  // lunr 2.3.9 tells nodes of its dictionary apart by label and number without a mark between: a node with the branches
  // 1 -> 1 and 2 -> 3 passes for one with 1 -> 123. A text full of numbers loses words by that, with an error in each search.
  lunr.TokenSet.prototype.toString = function () {
    return (this.final ? "1" : "0") + Object.keys(this.edges).sort().map(label => `${label}${this.edges[label].id},`).join("")
  }
}
