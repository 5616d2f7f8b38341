// The search box: fetched when somebody searches. The worker (search.js) finds sections; this shows them, page by page.
{
  const MOST = 20 // pages shown
  const { base, search } = JSON.parse(document.getElementById("__config").textContent)
  const root = new URL(`${base.replace(/\/$/, "")}/`, location) // the base of the 404 page ends in a slash
  const form = document.forms.search, box = form.elements.query, panel = form.parentElement
  const status = panel.querySelector(".md-search-result__meta"), list = panel.querySelector(".md-search-result__list")
  const worker = new Worker(new URL(search, location))
  const sections = new Map()
  let moved = {}, ready = false, asked // the query that the worker has

  // The index holds HTML of the pages. Parsed apart from the page, none of it runs.
  const plain = html => new DOMParser().parseFromString(html, "text/html").body.textContent
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties)
    element.append(...children)
    return element
  }
  const pageOf = location => location.split("#")[0]
  const hrefOf = (location, words) => {
    const address = new URL(location, root)
    address.searchParams.set("h", words.join(" ")) // page.js marks these words
    return address.href
  }
  const marked = (text, words) => {
    if (!words.length) return [text]
    const parts = text.split(new RegExp(`(?<![\\p{L}\\p{N}])(${words.map(word => word.replaceAll(".", "\\.")).join("|")})`, "giu"))
    return parts.map((part, number) => number % 2 ? make("mark", { textContent: part }) : part)
  }
  const link = (section, words, ...children) =>
    make("a", { className: "md-search-result__link", href: hrefOf(section.location, words) }, ...children)

  const result = (group, words) => {
    const [best, ...others] = group.map(found => sections.get(found.location))
    const page = sections.get(pageOf(best.location)), title = plain(page.title)
    const place = (best === page ? [] : [title]).concat(best.location.startsWith("notebooks/") ? ["notebook"] : [])
    const heading = make("b", {}, ...marked(plain(best.title), words))
    const where = place.length ? [make("span", { className: "find-page", textContent: place.join(", ") })] : []
    const teaser = make("p", {}, ...marked(plain(best.text.split("\n")[0]).slice(0, 200), words))
    const more = others.filter(section => section !== page).slice(0, 2).map(section => link(section, words, plain(section.title)))
    return make("li", { className: "md-search-result__item" }, link(best, words, heading, " ", ...where, teaser), ...more)
  }

  // A teaser is the first sentence of its section. When somebody stops typing, the page is fetched and the teaser becomes the passage
  // that has most of the words.
  const PAUSE = 400, TEASERS = 5 // ms; results that are looked into
  const BEFORE = 40, AFTER = 160 // letters of a passage round its first word
  const pages = new Map()
  const page_at = address => {
    if (!pages.has(address)) pages.set(address, fetch(new URL(address, root)).then(answer => answer.text()).then(html => new DOMParser().parseFromString(html, "text/html")))
    return pages.get(address)
  }
  const parts_of = async location => { // of a section, up to the next heading
    const [address, anchor] = location.split("#"), page = await page_at(address), parts = []
    const heading = anchor ? page.getElementById(anchor) : page.querySelector("article h1")
    for (let part = heading?.nextElementSibling; part && !/^H[1-6]$/.test(part.tagName); part = part.nextElementSibling) parts.push(part)
    return parts
  }
  form.parts = parts_of // for the paste box of Debugging
  const passages = parts => parts.flatMap(part => part.matches("p") ? [part] : part.matches("ul, ol, .scroll") ? [...part.querySelectorAll("tr, li")] : [])
    .map(part => [...part.cells ?? [part]].map(cell => cell.textContent).join(" · ").replace(/\s+/g, " ").trim())
  const telling = words => text => { // how many of the words it has
    const lower = text.toLowerCase()
    return words.filter(word => new RegExp(`(?<![\\p{L}\\p{N}])${word.replaceAll(".", "\\.")}`, "u").test(lower)).length
  }
  const look_into = async (query, groups, words) => {
    const count = telling(words), results = [...list.children]
    await Promise.all(groups.slice(0, TEASERS).map(async ([best], number) => {
      const said = plain(best.text ?? sections.get(best.location).text).split("\n")[0], teaser = results[number].querySelector("p")
      const hit = passages(await parts_of(best.location)).map(text => [count(text), text]).reduce((one, other) => other[0] > one[0] ? other : one, [count(said), ""])[1]
      if (!hit || list.dataset.query !== query) return
      const start = Math.max(0, Math.min(...words.map(word => hit.toLowerCase().indexOf(word)).filter(at => at >= 0)) - BEFORE), from = start && hit.indexOf(" ", start) + 1
      teaser.replaceChildren(...marked(`${from ? "… " : ""}${hit.slice(from, from + BEFORE + AFTER)}`, words))
    }))
  }

  // A notebook shares the title and the words of its guide, which explains them.
  const guidesFirst = groups => {
    const title = group => sections.get(pageOf(group[0].location)).title
    const isNotebook = group => group[0].location.startsWith("notebooks/")
    const behind = groups.filter((group, number) =>
      isNotebook(group) && groups.slice(number).some(other => !isNotebook(other) && title(other) === title(group)))
    return groups.filter(group => !behind.includes(group)).flatMap(group =>
      [group, ...behind.filter(notebook => !isNotebook(group) && title(notebook) === title(group))])
  }

  // A name that a page had, or its whole address, as one pastes it from an old link.
  const oldName = query => {
    const location = moved[query.trim().toLowerCase().replace(/^.*\/docs\/\w+\/(?:[^/]+\/)*(?=[\w-]+\/?$)|\.html$|\/+$/g, "")]
    return sections.has(location) ? [{ location }] : undefined
  }

  // A question that names a model is one for the page your-model: it is offered above the pages.
  const ASKED = /\b(fit|fits|vram|memory|gib|gb|ram|train|training|pretrain|fine[- ]?tun\w*|rent|cheap\w*|lora|qlora|dpo|grpo|fast|speed|tokens|tps|long|hours|days|cost|price|run|inference|serve|llms?)\b/i
  // And one about memory, time or money that names none leads to the empty form.
  const QUANTITY = /\b(calculator|estimator|(which|what|cheapest|best) gpus?|gpus? (for|to|do i need)|how (much|many) (vram|memory|ram|gpus|gpu memory)|(can|could) i (run|train|fine[- ]?tune)|(will|does) it fit|how (long|many (hours|days))\b.*\b(pre-?train|train|fine[- ]?tun)\w*|costs? (of|to) (train|pretrain|serv|fine|run)\w*)\b/i
  const TASKS = [["qlora", /\bqlora\b/i], ["full", /\b(full|pre-?train\w*|scratch)\b/i], ["lora", /\b(lora|fine[- ]?tun\w*|sft|dpo|grpo)\b/i], ["full", /\btrain\w*/i], ["infer", /./]]
  const WEIGHTS = [["q4_k_m", /\b(q4|gguf|ollama|llama\.cpp)/i], ["int4-128", /\b(4[- ]?bits?|int4|awq|gptq)\b/i], ["fp8", /\b(fp8|8[- ]?bits?)\b/i]]
  let choices // of the planner: fetched at the first digit, which all such names have
  const named = (called, words, most = 5) => {
    for (let size = most; size; size--) for (let from = 0; from + size <= words.length; from++) {
      const joined = words.slice(from, from + size).join("")
      if (Object.hasOwn(called, joined)) return { name: called[joined], before: words[from - 1], at: from, size }
    }
  }
  const COUNTS = { two: 2, three: 3, four: 4, eight: 8 }
  const count = word => COUNTS[word] ?? Number(/^(\d{1,4})x?$/.exec(word)?.[1] ?? 1) // "8 h100", "2x 3090"
  const NEWEST = ["qwen3-", "llama3", "qwen2.5-", ""]
  const ofSize = (models, words) => { // "70b": a model that is called so
    const size = words.find(word => /^\d+(\.\d+)?b$/.test(word))
    const called = size ? models.filter(one => one.name.endsWith(`-${size}`)) : []
    const best = NEWEST.map(start => called.find(one => one.name.startsWith(start))).find(Boolean)
    return best && { name: best.name, as: `${size.toUpperCase()}, such as ${best.name},` }
  }
  const amount = text => Number(text.replaceAll(",", ""))
  // What else a question says: an objective, tokens of a sequence or of all data, users.
  const ANSWER = 256 // tokens, as the form has it
  const details = (query, task, positions = Infinity) => {
    const [, whole, unit] = query.match(/\b([\d,.]*\d) ?(b|bn|billion|t|trillion|m|million)? tokens\b(?! ?\/| per\b)/i) ?? [], context = query.match(/\b(\d{1,3}) ?k\b(?= ?(?:tokens|context|sequence|length))/i)?.[1]
    const users = query.match(/\b(\w+) (?:users|readers|people)\b/i)?.[1], many = COUNTS[users] ?? (Number(users) || 0), length = context ? 1024 * context : whole && !unit ? amount(whole) : 0
    const [, rows, thousand] = query.match(/\b([\d,]+) ?(k)? (?:samples|examples|rows|conversations|chats|pairs|documents)\b/i) ?? []
    const of_training = [["rows", rows ? amount(rows) * (thousand ? 1000 : 1) : 0], ["objective", query.match(/\b(dpo|grpo)\b/i)?.[1].toLowerCase()], ["length", length >= 32 ? length : 0], ["tokens", unit ? `${whole}${unit[0].toUpperCase()}` : ""]]
    return (task === "infer" ? [["users", many > 1 ? many : 0], ["prompt", length >= 32 ? Math.min(length, positions - ANSWER) : 0]] : of_training).filter(([, value]) => value)
  }
  const OF_SIZE = { 8: "rtx-4060", 12: "rtx-3060-12", 16: "rtx-5080", 24: "rtx-4090", 32: "rtx-5090", 48: "rtx-6000-ada", 80: "h100-sxm5" } // GB: a GPU that has them
  const UNLISTED = /\b(deepseek|gpt-?oss|kimi|glm|minimax|gemma[- ]?[34]|llama[- ]?4|qwen3[.-](5|next))/i // families that the form does not have
  const SMALL = 16, FITS_SMALL = 6e9 // GiB of a GPU, and parameters whose 16 bits leave it no room
  const LARGE = 30e9 // parameters: one card for gamers holds no such model
  const planned = async query => {
    const quantity = QUANTITY.test(query)
    if (!(quantity || /\d/.test(query)) || query.length > 120) return
    choices ??= fetch(new URL("planner/choices.json", root)).then(answer => answer.json()).catch(() => undefined)
    const offered = await choices, words = query.toLowerCase().replace(/\b(\d{1,4})x(?=[a-z]*\d)/g, "$1 ").match(/[a-z0-9]+(\.[a-z0-9]+)*/g) ?? []
    if (!offered) return
    const known = name => Object.hasOwn(offered.spellings.gpus, name)
    words.forEach((word, at) => { if (!known(word) && word.endsWith("s") && known(word.slice(0, -1))) words[at] = word.slice(0, -1) }) // two 3090s
    const sized = OF_SIZE[query.match(/\b(\d{1,2}) ?gb\b/i)?.[1]], gpu = named(offered.spellings.gpus, words) ?? (sized && { name: sized }), gpus = count(gpu?.before)
    const model = named(offered.spellings.models, words) ?? (gpu || ASKED.test(query) ? ofSize(offered.models, words) : undefined)
    if (!model && (!quantity && !(gpu && ASKED.test(query)) || UNLISTED.test(query) || words.some((word, at) => /^\d+(\.\d+)?b$/.test(word) && words[at + 1] !== "tokens"))) return // no answer about another model
    const address = new URL("your-model/", root), of = name => offered.models.find(one => one.name === name)
    const card = offered.gpus.find(one => one.name === gpu?.name), said = TASKS.find(([, said]) => said.test(query))[0]
    const tight = said === "lora" && !/\b(lora|dpo|grpo)\b/i.test(query) && card?.gib <= SMALL && of(model?.name)?.parameters > FITS_SMALL // it did not say how
    const task = card && !card.trains ? "infer" : tight ? "qlora" : said, large = !gpu && of(model?.name)?.parameters > LARGE
    if (task === "infer" && /\b(offload\w*|on (a |the |my )?cpus?)\b/i.test(query)) return // weights on the host are no question of the form
    const other = gpu && / (vs\.?|versus|or|against) /i.test(query) && named(offered.spellings.gpus, words.slice(gpu.at + gpu.size))
    address.searchParams.set("task", task)
    if (model) address.searchParams.set("model", model.name)
    if (gpu || large) address.searchParams.set("gpu", gpu?.name ?? "h100-sxm5")
    const needs = large ? { infer: 2, qlora: 1 }[task] ?? 8 : gpus
    if (needs > 1) address.searchParams.set("gpus", needs)
    const bits = WEIGHTS.find(([, said]) => said.test(query))?.[0]
    if (bits && task === "infer") address.searchParams.set("weights", bits) // training has no such field
    if (other) address.searchParams.set("table", "gpu") // both are rows of it
    for (const [name, value] of details(query, task, of(model?.name)?.positions)) address.searchParams.set(name, value)
    const what = [model?.as ?? model?.name, gpu && `${gpus > 1 ? `${gpus} x ` : ""}${gpu.name}${other ? ` or ${other.name}` : ""}`].filter(Boolean).join(" on ")
    return make("a", { className: "find-ask", href: address.href }, make("b", { textContent: what.replace(/,$/, "") || "Your model on your GPUs" }), ": does it fit, how fast is it, what does it cost? Ask dryrun in the page")
  }

  let paused
  const show = (query, { items, words, instead }) => {
    const sorted = guidesFirst(items)
    const first = oldName(query)
    const groups = first ? [first, ...sorted.filter(group => pageOf(group[0].location) !== pageOf(first[0].location))] : sorted
    list.replaceChildren(...groups.slice(0, MOST).map(group => result(group, words)))
    list.parentElement.parentElement.scrollTop = 0
    const changed = Object.entries(instead).map(([typed, word]) => `“${word}” for “${typed}”`).join(", ")
    const found = groups.length ? `${groups.length} page${groups.length > 1 ? "s" : ""}` : "No page has these words. Try an argument, a method or a part of the message"
    status.textContent = changed ? `${found}, with ${changed}` : found
    panel.querySelector(".find-ask")?.remove()
    planned(query).then(link => {
      panel.querySelector(".find-ask")?.remove()
      if (link && box.value === query) status.after(link)
    })
    list.dataset.query = query // for whoever waits for the answer
    clearTimeout(paused)
    if (!navigator.connection?.saveData) paused = setTimeout(() => look_into(query, groups, words).catch(() => {}), PAUSE) // without the pages the first sentences stay
  }

  // Other scripts of a page ask for the sections of a text, the best first.
  const others = [] // {query, answer, fail}
  let other, failed // whose query the worker has; why there is no index
  form.ask = query => new Promise((answer, fail) => {
    if (failed) return fail(failed)
    others.push({ query, answer, fail })
    ask()
  })

  const ask = () => {
    if (!ready || asked !== undefined) return // the answer that is under way asks again
    if (others.length) {
      other = others.shift()
      asked = other.query
      worker.postMessage({ type: 2, data: asked })
      return
    }
    const query = box.value
    if (!/[\p{L}\p{N}]/u.test(query)) {
      list.replaceChildren()
      panel.querySelector(".find-ask")?.remove()
      status.textContent = "Type a word, an argument or a whole error message"
      list.dataset.query = query
      return
    }
    asked = query
    worker.postMessage({ type: 2, data: query })
  }
  worker.addEventListener("message", ({ data }) => {
    if (data.type === 1) ready = true
    else if (data.type === 3) {
      const query = asked, whose = other
      asked = other = undefined
      if (whose) {
        const found = guidesFirst(data.data.items)
        whose.answer(found.map(group => sections.get(group[0].location)).map(({ location, title }) => ({ location, title: plain(title), page: plain(sections.get(pageOf(location)).title) })))
      } else if (query === box.value) return show(query, { ...data.data, words: data.words, instead: data.instead })
    }
    ask()
  })

  form.addEventListener("submit", event => {
    event.preventDefault()
    list.querySelector("a")?.click()
  })
  form.addEventListener("reset", () => setTimeout(() => { ask(); box.focus() }))
  box.addEventListener("input", ask) // typed, pasted, dictated or chosen
  panel.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    const stops = [box, ...panel.querySelectorAll(".find-ask, .md-search-result__list a")]
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus()
  })

  // The words of the sections, which evidence/site/search_index.py wrote by word. Their order in a text says nothing.
  const putBack = ({ docs, words, places, digits }) => {
    const texts = docs.map(() => []), lists = places.split("\n")
    let word = ""
    words.split("\n").forEach((end, number) => {
      word = [...word].slice(0, end[0]).join("") + end.slice(1)
      let place = 0, more = 0
      for (const letter of lists[number]) {
        const digit = digits.indexOf(letter)
        if (digit >= 64) { more = more * (digits.length - 64) + digit - 64; continue }
        place += more * 64 + digit
        more = 0
        texts[place].push(word)
      }
    })
    docs.forEach((section, number) => { section.text += `\n${texts[number].join(" ")}` })
  }

  status.textContent = "Loading the search"
  fetch(new URL("search/search_index.json", root)).then(answer => answer.json()).then(index => {
    moved = index.moved
    putBack(index)
    for (const section of index.docs) sections.set(section.location, section)
    worker.postMessage({ type: 0, data: { config: index.config, docs: index.docs, common: index.common, options: { suggest: false } } })
  }).catch(() => {
    status.textContent = "The search could not be loaded"
    failed = Error("the search could not be loaded")
    others.splice(0).forEach(({ fail }) => fail(failed))
  })
}
