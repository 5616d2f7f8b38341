// The worker of the search: Material's, which the address names, with three changes. Runs only when somebody searches.
{
  // A reader's words. Material takes any of them for the beginning of one ("a", "in"), and a colon, parenthesis or dash of
  // an error message for an operator. So: no common words, names in parts, and the word itself before what begins so.
  let common // the index brings them (evidence/site/search_index.py), which leaves them out of its texts

  const FRAME = /File "[^"]*", line \d+(, in \S+)?/g // of a traceback: its path and function are the reader's own

  // What readers write for words that pages spell out, which they have too.
  const MEANS = {
    amp: "mixed precision", bfloat16: "bf16", cp: "context parallelism", dp: "data parallelism", ep: "expert parallelism", gas: "gradient accumulation",
    ga: "gradient accumulation", gc: "checkpointing", hpo: "hyperparameter search", lr: "learning rate", mfu: "utilization",
    moe: "mixture experts", ngl: "layers gpu llama", multi: "many several", multiple: "many several", oom: "outofmemoryerror memory", pp: "pipeline parallelism",
    rl: "reinforcement learning grpo", sdpa: "scaled dot product attention", several: "many",
    forever: "never stops", forgets: "forgot forgetting", forgot: "forgetting", freezes: "hangs", garbage: "wrong", gibberish: "garbage wrong", idle: "waits", imatrix: "importance matrix", repeats: "never stops", shuts: "powers off reboots",
    tp: "tensor parallelism", tps: "tokens second", ttft: "first token",
  }
  // And what pages have by chance, if at all: the other words take its place.
  const PLAIN = {
    batchsize: "batch size", bs: "batch size", eta: "days train", computer: "machine", computers: "machines", ckpt: "checkpoint", fa2: "flashattention", fa3: "flashattention", finetune: "fine tune",
    finetuning: "fine tuning", jpeg: "images", jpg: "images", mac: "apple", macbook: "apple", overheating: "heat throttling", overheats: "heat throttling", seqlen: "sequence length", tei: "text embeddings inference", util: "utilization", vlm: "vision language", vram: "gpu memory",
  }
  const TUNING = /^(fine|tun(e|ed|es|ing))$/ // most pages are about it: it says little
  // Nor do these, which few pages have: a rare word is not always a telling one.
  const FILLER = /^(again|already|always|any(one|thing|more)?|bad|before|cheap|completely|correctly|different|easy|enough|even|every(thing)?|few|first|good|great|guide|help|hours?|idea|instead|keeps?|kn(e|o)ws?|little|lot|many|minutes?|more|nothing|now|only|one|possible|proper(ly)?|quick(ly)?|really|right|simple|some(how|one|thing|times)?|still|suddenly|sure|thing|time|try|trying|want|way|went|whole|work(s|ing)?|wrong)$/
  const NUMBER = /^[\d.]+$/ // no beginning of another: 30 is no 3090
  const SPELLINGS = [["is", "iz"], ["our", "or"], ["lis", "liz"], ["lled", "led"], ["lling", "ling"], ["que", "k"]]

  const FORMS = 4 // times as many sections
  let index, words, counts, sections, instead, told = [], forms = {} // counts: how many sections have a word
  const learn = () => {
    counts = new Map(Object.entries(index.invertedIndex).map(([word, { text, title }]) =>
      [word, Object.keys(text).length + 5 * Object.keys(title).length]))
    words = [...counts.keys()].sort()
    sections = Object.keys(index.fieldVectors).filter(name => name.startsWith("title/")).length
  }
  const first = start => { // the first word from here on, by halves
    let low = 0, high = words.length
    while (low < high) { const middle = (low + high) >> 1; if (words[middle] < start) low = middle + 1; else high = middle }
    return words[low]
  }
  const having = start => { // how many sections have a word that begins so
    let sum = 0
    for (let at = words.indexOf(first(start)); at >= 0 && words[at]?.startsWith(start); at++) sum += counts.get(words[at])
    return sum
  }
  const begins = start => first(start)?.startsWith(start)

  const isOneOff = (typed, word) => { // one letter more, less, other, or two that have changed places
    if (Math.abs(typed.length - word.length) > 1 || typed === word) return false
    let from = 0, to = 0
    while (from < typed.length && typed[from] === word[from]) from++
    while (to < Math.min(typed.length, word.length) - from && typed.at(-1 - to) === word.at(-1 - to)) to++
    const [a, b] = [typed.slice(from, typed.length - to), word.slice(from, word.length - to)]
    return a.length <= 1 && b.length <= 1 || a.length === 2 && a[0] === b[1] && a[1] === b[0]
  }
  const spelled = word => SPELLINGS.flatMap(pair => [pair, [...pair].reverse()]).map(([one, other]) => word.replace(one, other))
    .find(other => other !== word && begins(other))
  const mistyped = word => words.filter(other => other.length > 3 && isOneOff(word, other) && /^\p{L}+$/u.test(other))
    .sort((a, b) => counts.get(b) - counts.get(a))[0]
  const shorter = word => { // tokenizing, initialized: what they begin with
    for (let length = word.length - 1; length >= Math.max(5, word.length - 5); length--) if (begins(word.slice(0, length))) return word.slice(0, length)
  }
  const known = word => { // the word, or what it most probably is
    if (word.length < 4 || common.has(word) || !/^\p{L}+$/u.test(word) || begins(word)) return word
    const found = spelled(word) ?? mistyped(word) ?? shorter(word) ?? word
    if (found !== word) instead[word] = found
    return found
  }

  // A form that pages hardly use (profiling) stands for those that they do (profiler, profile).
  const ENDING = /(?:ing|ed|ible|able|ation|ions?|est|e?s)$/
  const ofForm = word => {
    const start = word.replace(ENDING, "")
    return start.length >= 4 && having(start) > FORMS * having(word) ? start : word
  }

  const apart = word => begins(word) ? word : word.match(/^(\d+)(\p{L}{2,})$|^(\p{L}{2,})(\d+)$/u)?.slice(1).filter(Boolean) ?? word // 24gb, zero3: pages write two words

  const together = names => { // whether a section has all parts of a name: zero_to_fp32.py
    const places = name => ["title", "text"].flatMap(field => Object.keys(index.invertedIndex[name]?.[field] ?? {}))
    return names.length > 2 && names.map(places).reduce((some, more) => some.filter(place => more.includes(place))).length > 0
  }

  const SHORT = 60 // characters: a message is longer
  const rewrite = pasted => {
    instead = {}
    const query = pasted.replace(FRAME, " ").replace(/n-gpu-layers/gi, "ngl").replace(/^\s*out of memory\s*$/i, "CUDA out of memory") // else common words and "memory"
    const typed = query.toLowerCase().match(/[\p{L}\p{N}_.]+/gu)?.flatMap(word => word.split(/_+|\.(?!\d)/)).filter(Boolean).flatMap(apart) ?? []
    const telling = typed.filter(word => !common.has(word) && !/^\d$/.test(word)) // a rank's number says nothing
    const asked = (telling.length ? telling : typed).flatMap(word => Object.hasOwn(PLAIN, word) ? PLAIN[word].split(" ") : known(word))
    told = [...new Set(asked)]
    if (/^(\s*"[^"]+")+\s*$/.test(query) || /^\s*[\w-]+(?:[_.-]+\w+)+\s*$/.test(query) && together(told)) return told.map(word => `+${word}`).join(" ") // a quotation means all of its words; a message may hold quotes
    const camel = query.length > SHORT ? [] : [...query.matchAll(/\b[A-Z][a-z]+(?:[A-Z][a-z\d]+)+\b/g)].flatMap(([name]) => name.split(/(?=[A-Z])/)).map(part => part.toLowerCase()) // StaticCache: a static cache
    const meant = told.filter(word => Object.hasOwn(MEANS, word)).flatMap(word => MEANS[word].split(" "))
    forms = Object.fromEntries(told.map(word => [word, ofForm(word)]).filter(([word, start]) => start !== word))
    return [...asked.map(word => TUNING.test(word) || FILLER.test(word) ? word : NUMBER.test(word) ? `${word}^2` : `${word}^2 ${forms[word] ?? word}`), ...meant, ...camel].join(" ")
  }

  const SETUP = 0, QUERY = 2
  addEventListener("message", ({ data }) => { // before Material's
    if (data.type === SETUP) common = new Set(data.data.common)
    else if (data.type === QUERY) data.data = rewrite(data.data)
  })
  // Material multiplies a score by 1 + (1 for a page, 0 for a section + share of the words found)^2, so that a page with "train" in its
  // title goes before the section that has all words. Here a page counts half, and a word counts by how rare it is.
  const weight = start => Math.max(0, Math.log((sections + 1) / (having(start) + .5))) // of a word: how rare are those that begin so?
  const rescored = ({ score, terms, parent, ...item }) => {
    const asked = Object.entries(terms).filter(([word]) => !Object.hasOwn(forms, word) && !TUNING.test(word) && !FILLER.test(word)), share = asked.filter(([, found]) => found).length / (asked.length || 1)
    const all = asked.reduce((sum, [word]) => sum + weight(word), 0)
    const rare = asked.reduce((sum, [word, found]) => sum + found * weight(word), 0) / (all || 1)
    return { ...item, parent, terms, score: score / (1 + (!parent + share) ** 2) * (1 + (!parent / 2 + rare) ** 2) }
  }
  const SECOND = .1 // of the score of a page's other sections, which counts too
  const sorted = items => items.map(group => group.map(rescored).sort((a, b) => b.score - a.score))
    .map(group => ({ group, score: group.slice(1, 3).reduce((sum, one) => sum + SECOND * one.score, group[0].score) }))
    .sort((a, b) => b.score - a.score).map(({ group }) => group)

  const post = self.postMessage.bind(self)
  self.postMessage = answer => post({ ...answer, ...(answer.data?.items ? { data: { ...answer.data, items: sorted(answer.data.items) } } : {}), words: told, instead })

  importScripts(new URLSearchParams(location.search).get("worker"))

  // lunr 2.3.9 tells nodes of its dictionary apart by label and number without a mark between: a node with the branches
  // 1 -> 1 and 2 -> 3 passes for one with 1 -> 123. A text full of numbers loses words by that, with an error in each search.
  lunr.TokenSet.prototype.toString = function () {
    return (this.final ? "1" : "0") + Object.keys(this.edges).sort().map(label => `${label}${this.edges[label].id},`).join("")
  }

  const build = lunr.Builder.prototype.build
  lunr.Builder.prototype.build = function () {
    index = build.call(this)
    learn()
    return index
  }
}
