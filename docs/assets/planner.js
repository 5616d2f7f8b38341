// The page your-model: makes the arguments of `dryrun` from the form, asks the worker, and shows what it says. The address carries the
// question: ?task=lora&model=llama3-8b&gpu=rtx-4090.
{
  const form = document.getElementById("planner"), answer = document.getElementById("planner-answer")
  const here = new URL(document.currentScript.src)
  const LABELS = { parameters: "weights", optimizer: "optimizer state", "weight copies": "16-bit copies of weights", inputs: "inputs" }
  const LIMITS = { mathematics: "computing", bandwidth: "memory bandwidth", launches: "launches", communication: "communication" }
  const FORMATS = { // of weights, by the engine that reads them
    bf16: "16 bits", fp8: "8 bits: fp8", int8: "8 bits: int8", "int4-128": "4 bits: AWQ, GPTQ", "int4-64": "4 bits, a scale for 64", "int4-32": "4 bits, a scale for 32",
    nvfp4: "4 bits: NVFP4", mxfp4: "4 bits: MXFP4", q8_0: "8 bits in llama.cpp: Q8_0", q4_k_m: "4 bits in llama.cpp: Q4_K_M", q4_0: "4 bits in llama.cpp: Q4_0", fp16: "16 bits: fp16", fp32: "32 bits"
  }
  const GUIDES = {
    lora: ["LoRA", "training/adapters-and-offload/#lora"], qlora: ["QLoRA", "training/qlora/#qlora"],
    full: ["Training on one GPU", "training/one-gpu/"], many: ["Training on many GPUs", "training/many-gpus/"],
    dpo: ["DPO and GRPO", "training/post-training/"], infer: ["Servers", "inference/servers/"]
  }
  const number = (value, digits = 3) => value.toLocaleString("en-US", value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits })
  const make = (name, content, attributes = {}) => {
    const element = Object.assign(document.createElement(name), attributes)
    element.append(...[content].flat().filter(part => part !== undefined && part !== null))
    return element
  }
  const field = name => form.elements.namedItem(name) // not elements[name]: `length` is a name
  const defaults = Object.fromEntries([...form.elements].filter(one => one.name).map(one => [one.name, one.type === "checkbox" ? one.checked : one.value]))

  // A GPU as people write it: in any spelling that dryrun knows, and "A100" is the one that is sold most.
  const plain = text => text.toLowerCase().replace(/[^a-z0-9.]/g, "")
  const gpu_of = text => {
    const key = plain(text), name = Object.hasOwn(offered.spellings.gpus, key) ? offered.spellings.gpus[key] : key
    return offered.gpus.find(one => [plain(one.name), plain(one.label)].includes(plain(name)))
  }
  // "8 x A100" and "M4 Max 64 GB" belong into two fields.
  const split_gpu = () => {
    field("gpu").value = field("gpu").value.replace(/^\s*macbook( (pro|air))?\s+(?=\S)/i, "")
    const [, many, of] = field("gpu").value.match(/^\s*(\d{1,4})\s*[x×*]\s*(\D.*)$/i) ?? [], [, chip, memory] = field("gpu").value.match(/^(.*\S)\s+(\d{1,4})\s*GB?$/i) ?? []
    if (many && gpu_of(of)) field("gpus").value = many, field("gpu").value = of
    else if (memory && !gpu_of(field("gpu").value) && gpu_of(chip)?.trains === false) field("memory").value = memory, field("gpu").value = chip
  }

  // Which fields belong to the question.
  const is = {
    train: () => field("task").value !== "infer", infer: () => field("task").value === "infer", full: () => field("task").value === "full",
    adapters: () => is.train() && !is.full(),
    grpo: () => is.train() && field("objective").value === "grpo", pairs: () => is.train() && field("objective").value === "dpo", many: () => is.train() && +field("gpus").value > 1,
    shared: () => is.infer() && gpu_of(field("gpu").value)?.trains === false, // CPU and GPU have one memory
    nodes: () => is.many() && +field("gpus").value > +field("gpus-per-node").value
  }
  const asked = name => {
    for (let part = field(name).closest("[data-for-task]"); part; part = part.parentElement.closest("[data-for-task]")) if (!is[part.dataset.forTask]()) return false
    return true
  }
  const CALLED = { // fields whose unit follows the objective
    length: ["Tokens of a sequence", "Tokens of prompt and answer, each of a pair", "Tokens of prompt and answer"],
    batch: ["Sequences at once, of each GPU", "Pairs at once, of each GPU", "Answers at once, of each GPU"],
    rows: ["Rows, each as long as a sequence", "Pairs, two such sequences each", "Answers in all, each with its prompt"]
  }
  const update = () => {
    form.querySelectorAll("[data-for-task]").forEach(part => { part.hidden = !is[part.dataset.forTask]() })
    for (const [name, words] of Object.entries(CALLED)) field(name).labels[0].firstChild.textContent = `${words[is.grpo() ? 2 : is.pairs() ? 1 : 0]} `
  }

  // The arguments of the command.
  const options = (...names) => names.filter(name => asked(name) && field(name).value && field(name).value !== defaults0[name])
    .flatMap(name => [`--${name}`, field(name).value])
  const defaults0 = { gpus: "1", "gpus-per-node": "8", rank: "16", length: "2048", batch: "1", accumulation: "1", objective: "sft", dtype: "bf16", optimizer: "adamw",
    strategy: "fsdp2", epochs: "1", prompt: "1024", new: "256", weights: "bf16" } // of the command: they need not be typed
  const whole = name => (name === "gpu" && gpu_of(field(name).value)?.name) || field(name).value.trim() || " "
  const step = () => {
    const task = field("task").value
    return [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "gpus-per-node", "network"), ...(task === "full" ? [] : [`--${task}`, ...options("rank").slice(1)]),
      ...options("objective"), ...(is.grpo() ? ["--new", field("written").value] : []), ...options("length", "batch", "accumulation", "dtype", "optimizer"),
      ...["checkpointing", "fused-loss", "compile"].filter(name => field(name).checked).map(name => `--${name}`)]
  }
  const generation = () => [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "memory", "prompt", "new"),
    ...(field("users").value && field("users").value !== "1" ? ["--batch", field("users").value] : []), ...options("weights", "price")]
  const much = () => is.infer() ? [] : options("rows", "tokens")
  const data = () => much().length ? [...much(), ...options("epochs", "price")] : []
  const plan = () => ["plan", ...step(), ...options("host-memory")]
  const question = (more = []) => is.infer() ? ["infer", ...generation()] : ["train", ...step(), ...options("strategy"), ...more]
  const whole_question = () => question([...data(), ...(is.train() && !is.grpo() ? ["--largest-batch"] : [])])
  const typed = words => ["dryrun", ...words].map(word => /[^\w./:=@%+,-]/.test(word) ? `'${word.replaceAll("'", "'\\''")}'` : word).join(" ") // the address may be anybody's

  // The address.
  let seen = location.search
  const show_address = search => {
    history.replaceState(null, "", `?${search}${location.hash}`)
    seen = location.search
  }
  const store = () => {
    const search = new URLSearchParams()
    for (const one of form.elements) {
      const value = one.type === "checkbox" ? one.checked : one.value
      if (one.name && asked(one.name) && value !== defaults[one.name]) search.set(one.name, one.type === "checkbox" ? Number(value) : value)
    }
    for (const name of ["task", "model", "gpu"]) search.set(name, field(name).value)
    show_address(search)
  }
  const LONGEST = 400 // characters of a value: sizes in words have a hundred
  const read = () => {
    for (const [name, value] of new URLSearchParams(location.search)) {
      const one = field(name)
      if (!one?.name) continue
      if (value.length > LONGEST) {
        refused.push(`${name}=${value.slice(0, 40)}…`)
        continue
      }
      if (one.type === "checkbox") one.checked = value === "1"
      else one.value = value
      if (one.type !== "checkbox" && one.value !== value) { // no such choice
        one.value = defaults[name]
        refused.push(`${name}=${value}`)
      }
    }
    for (const fold of form.querySelectorAll("details")) fold.open ||= [...fold.querySelectorAll("[name]")].some(one => one.value !== defaults[one.name])
    try { if (!new URLSearchParams(location.search).has("gpu") && localStorage.getItem("gpu")) field("gpu").value = localStorage.getItem("gpu") } catch {}
    split_gpu()
  }

  // A model by its sizes, in the words that dryrun takes: llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000.
  const own = document.getElementById("planner-own"), config = document.getElementById("planner-config"), said = document.getElementById("planner-own-said")
  const sizes = [...own.querySelectorAll("[data-size]")]
  const size = name => sizes.find(one => one.dataset.size === name)
  const in_words = () => `${size("kind").value}:${sizes.filter(one => one.type === "number" && one.value).map(one => `${one.dataset.size}=${one.value}`).join(",")}${size("tied").checked ? ",tied" : ""}`
  const fill = words => {
    const [kind, rest = ""] = words.split(":"), given = new Map(rest.split(",").map(part => part.split("=")))
    if ([...sizes, config].includes(document.activeElement)) return // they are being typed
    if (words) size("kind").value = kind // else a model that comes in one size: the fields are empty
    for (const one of sizes) if (one.type === "number") one.value = given.get(one.dataset.size) ?? ""
    size("tied").checked = given.has("tied")
  }
  own.addEventListener("input", event => {
    if (event.target === config) {
      if (!config.value.trim()) return
      if (worker || !navigator.connection?.saveData || asking) return send("in_words", config.value)
      return said.textContent = "Press Ask first: it loads Python, which reads the file."
    }
    said.textContent = ""
    field("model").value = in_words()
  })

  // What comes back.
  let last = 0, id = 0, table = 0 // numbers of what was asked: of all, of the question, of its table
  const REST = 500 // milliseconds
  let waiting, resting, shown = {}, known = ""
  let worker, asking = false, shown_once = false, taken = false
  const offer = () => {
    const button = make("button", "Ask: this loads Python, some 7 MB the first time", { type: "button", className: "md-button" })
    button.addEventListener("click", () => { asking = true; answer.replaceChildren(); ask() })
    answer.replaceChildren(button, command())
  }
  const start = () => {
    worker = new Worker(new URL("planner-worker.mjs", here), { type: "module" })
    worker.addEventListener("message", ({ data }) => {
      const { id: of, kind, asked: words, answer: found } = data
      if (kind === "loading") return data.size && answer.querySelector(".planner-wait") && loading(`Loading Python, which answers the rest: ${(data.loaded / 1e6).toFixed(1)} of ${(data.size / 1e6).toFixed(1)} MB, once …`)
      if (kind === "in_words") return words === config.value && pasted(found) // else another one was pasted meanwhile
      if (of !== id && of !== table) return
      if (kind === "row") return another(words, found)
      if (kind === "first" && !("error" in found)) { // what would help is many answers: it waits until nobody types
        clearTimeout(resting)
        resting = setTimeout(() => { if (of === id) rest() }, REST)
      }
      received(data)
    })
    worker.addEventListener("error", event => answer.replaceChildren(make("p", `The page could not start Python: ${event.message ?? "this browser has no module workers"}. On the command line:`), command()))
  }
  // Until there is an answer, also in the line that a phone shows.
  const loading = text => {
    const wait = answer.querySelector(".planner-wait")
    if (wait) wait.textContent = text
    else answer.replaceChildren(make("p", text, { className: "planner-wait" }))
    if (answer.querySelector(".planner-verdict")) return
    brief.textContent = text
    brief.hidden = false
  }
  // What a command asks, whatever it leaves to its defaults and in whatever order.
  const meaning = words => {
    const found = { verb: words[0], model: words[1], gpus: "1", ...(words[0] === "infer" ? { prompt: "1024", new: "256", batch: "1", weights: "bf16" } : { length: "2048", batch: "1" }) }
    for (let at = 2; at < words.length; at++) {
      const name = words[at].slice(2), value = at + 1 < words.length && !words[at + 1].startsWith("--") ? words[at += 1] : name.endsWith("lora") ? "16" : ""
      if (name !== "largest-batch") found[name] = value
    }
    return JSON.stringify(Object.entries(found).sort())
  }
  // The site's own answers to common questions, answers/MODEL/GPU.json, say memory and speed before Python is here.
  const early = async () => {
    const asked_for = id, words = whole_question(), key = plain(field("model").value.split("/").at(-1)), spelled = Object.hasOwn(offered.spellings.models, key) && offered.spellings.models[key], gpu = gpu_of(field("gpu").value)
    if (!spelled || !gpu) return
    const response = await fetch(new URL(`../answers/${spelled}/${gpu.name}.json`, here)).catch(() => undefined)
    const stored = response?.ok ? (await response.json()).answers : [], wanted = meaning([words[0], spelled, ...words.slice(2)])
    const one = stored.find(each => !each.error && meaning(each.command.split(" ").slice(1)) === wanted)
    if (!one || shown_once || asked_for !== id) return
    const { fits, verdict: said, expected_gib, high_gib, gpu_gib, tokens_per_second, low, high } = one
    shown = { [words[0]]: one }
    answer.prepend(verdict_of({ fits, verdict: said, gpu_gib }, expected_gib, high_gib), ...(tokens_per_second ? [facts([["Speed", band(tokens_per_second, low, high, `tokens/s${is.train() && is.many() ? " of all GPUs" : +field("users").value > 1 && is.infer() ? " of all users" : ""}`)]])] : []))
    summarize()
    shown = {}
  }
  const send = (kind, words, of = id) => {
    if (!worker) start()
    worker.postMessage({ id: of, kind, asked: words })
  }
  const received = ({ kind, asked: words, model, answer: found }) => {
    const more = kind === "first" && !("error" in found)
    answer.setAttribute("aria-busy", more)
    shown[words[0]] = found
    known = model?.name // its own, where an alias was typed
    fill(model?.words ?? "")
    answer.classList.remove("planner-old")
    document.querySelector(".planner-busy").hidden = shown_once = true
    const held = answer.contains(document.activeElement) && document.activeElement
    answer.replaceChildren(...show())
    summarize()
    if (held) [...answer.querySelectorAll(held.tagName)].find(one => one.textContent === held.textContent)?.focus({ preventScroll: true })
    if (linked && !more && document.getElementById("planner-table")) compare(linked)
    else if (table) tabulate() // its place is a new one
    if (taken && words[0] !== "plan") { // the button that was pressed is gone
      const verdict = answer.querySelector(".planner-verdict")
      verdict?.focus({ preventScroll: true })
      verdict?.scrollIntoView({ block: "nearest" })
      taken = false
    }
  }
  const pasted = found => {
    said.textContent = found.error ?? `Its sizes are in the fields above${found.left_out ? `, without its ${found.left_out} part` : ""}.${found.stored_in ? ` Its weights are published in ${found.stored_in}: here they are of the kind that you choose.` : ""}`
    if (found.error) {
      id = last += 1 // an answer on its way is of another model
      return refuse(`No answer: this config.json cannot be taken. ${found.error}`)
    }
    config.value = ""
    config.blur()
    field("model").value = found.model
    ask()
  }
  const refuse = text => {
    mark()
    answer.classList.remove("planner-old")
    answer.setAttribute("aria-busy", false)
    document.querySelector(".planner-busy").hidden = true
    shown = {}
    answer.replaceChildren(make("p", text, { className: "planner-verdict no", role: "alert" }))
    summarize()
  }
  // On a phone the answer is below the form: its first words stay in sight, and lead to it.
  const brief = document.querySelector(".planner-brief")
  const in_sight = new IntersectionObserver(([entry]) => brief.classList.toggle("seen", entry.isIntersecting || entry.boundingClientRect.top < 0))
  const summarize = () => {
    in_sight.disconnect()
    const verdict = answer.querySelector(".planner-verdict"), found = shown.train ?? shown.infer ?? {}, rate = found.tokens_per_second ?? found.speed?.tokens_per_second
    brief.hidden = !verdict
    if (!verdict) return
    in_sight.observe(verdict)
    const fits = "fits" in found ? [verdict.querySelector("b").textContent, state(found) === "fits" && `${number(found.gpu_gib - found.high_gib, 2)} GiB left`] : [verdict.textContent]
    const mine = [...answer.querySelectorAll("dt")].find(one => one.textContent === "Yours")?.nextSibling.textContent.match(/: ([^:]+)/)?.[1]
    brief.textContent = [...fits, rate && state(found) !== "no" && `${number(rate)} tokens/s`, found.hours && state(found) !== "no" && `${number(found.hours)} h`,
      found.cost && state(found) !== "no" && `cost ${number(found.cost)}`, mine].filter(Boolean).join(" · ")
  }
  brief.addEventListener("click", () => {
    const verdict = answer.querySelector(".planner-verdict")
    verdict.tabIndex = -1
    verdict.focus({ preventScroll: true })
    verdict.scrollIntoView()
  })
  const refused = [] // of the address
  const ask = () => {
    update()
    store()
    const stored = !shown_once && firsts.find(one => one.asked.join(" ") === whole_question().join(" "))
    shown = {}
    if (!worker && navigator.connection?.saveData && !asking) return stored ? received({ kind: "ask", ...stored }) : offer()
    if (!worker) start()
    id = last += 1
    if (table) linked = axis // the table is made again for the new question
    table = 0
    const unread = [...form.elements].find(one => (one.validity?.badInput || one.validity?.rangeUnderflow) && (!one.name || asked(one.name)))
    if (unread) {
      refuse(`${unread.labels[0].firstChild.textContent.trim()}: give ${unread.validity.badInput ? "a number" : `${unread.min} or more`}`)
      return unread.setAttribute("aria-invalid", "true")
    }
    if (stored) received({ kind: "ask", ...stored })
    else if (!shown_once) {
      loading("Loading Python, some 7 MB the first time …")
      early()
    }
    answer.classList.toggle("planner-old", shown_once && !stored)
    document.querySelector(".planner-busy").hidden = !shown_once || Boolean(stored)
    if (is.train()) send("first", whole_question())
    else send("ask", whole_question())
  }
  const rest = () => {
    send("ask", whole_question())
    if (is.many() && !is.grpo()) send("ask", plan())
  }
  const show = () => {
    const found = shown.train ?? shown.infer
    if (!found) return []
    mark(found.error)
    if ("error" in found) {
      const [, axis] = found.error.match(/^(gpu|model)[= ]'.*' is not known/) ?? []
      if (axis) return unknown(axis)
      const other = / no time is predicted/.test(found.error) ? [" What others measured: ", make("a", "Other hardware", { href: new URL(`../hardware/other/${/apple|\bm\d/i.test(field("gpu").value) ? "#mac-models" : ""}`, here).href })] : []
      const [, given, most] = found.error.match(/^(length|prompt)\b.*: take (\d+) or fewer$/) ?? []
      return [make("p", [in_page(found.error), ...other, ...(given === "length" ? [" ", take(`take ${number(+most)}`, { length: most })] : [])], { className: "planner-verdict no", role: "alert" }), ...(/with torch|The command below/.test(found.error) ? [command()] : [])]
    }
    return [...(shown.infer ? served(found) : trained(found)), command(), next(), comparison()]
  }
  // Names that share most with what was typed: its words, and its billions of parameters.
  const words_of = text => text.toLowerCase().match(/[\d.]+b\b|[a-z]+|[\d.]+/g) ?? []
  const near = (text, all) => {
    const wanted = words_of(text), score = one => {
      const has = words_of(`${one.name} ${one.label ?? ""}`)
      return wanted.reduce((sum, word) => sum + (has.includes(word) ? 2 : word.length > 2 && has.some(other => other.startsWith(word)) ? 1 : 0), 0)
    }
    const most = Math.max(1, ...all.map(score))
    return all.filter(one => score(one) === most).slice(-8)
  }
  const unknown = axis => {
    const text = field(axis).value.trim(), like = text ? near(text, offered[`${axis}s`]) : []
    const where = { gpu: "The list under GPU has all names.", model: "The list under Model has all names. Or give its sizes, or its config.json, below its name." }[axis]
    mark(`${axis}:`)
    return [make("p", [`${{ gpu: "GPU", model: "Model" }[axis]} ${text ? `“${text}” is not known here. ` : "is empty. "}`, ...(like.length ? ["Is it one of these? ", ...like.flatMap(one => [take(one.label ?? one.name, { [axis]: one.name }), ", "]).slice(0, -1), ". "] : []), where], { className: "planner-verdict no", role: "alert" })]
  }
  // A message of the command, in the words of the page.
  const named_field = option => field(is.infer() && option === "batch" ? "users" : /^q?lora$/.test(option) ? "rank" : option === "new" && is.grpo() ? "written" : option)
  const in_page = error => error.replace(/^argument --([\w-]+)(?:\/--[\w-]+)*: /, (_, name) => `${named_field(name)?.labels?.[0]?.firstChild.textContent.trim() ?? name}: `).replace(/ \(all options: .*\)$/, "").replace(/ All names: dryrun gpus$/, " The list under GPU has all names.").replace(/ The memory of a step is traced without a GPU.*/, "")
    .replace(/^gpu='([^']*)'/, "GPU “$1”").replace(/^model '([^']*)'/, "Model “$1”").replace("by `dryrun infer`", "by the task “Run it”").replace(" is not in dryrun/data/accelerators.json", " is not known").replace(/^length=(\d+)/, (_, tokens) => `${field("length").labels[0].firstChild.textContent.trim()}: ${number(+tokens)}`).replace(/^prompt \+ new=(\d+)/, (_, tokens) => `Prompt and answer: ${number(+tokens)} tokens`)
    .replace(/no profile answers this question: on a machine with torch the command does$/, "this page has no trace of this model for this question. On a machine with torch the command answers:").replace("gpus_per_node (--gpus-per-node of the command)", "“GPUs in a node”").replace(/ Or give a config.json\.$/, " Or give its sizes, or its config.json, below its name.")
  // The field that a message is about.
  const mark = error => {
    for (const one of form.elements) one.removeAttribute("aria-invalid")
    const [, option, other] = error?.match(/^argument --([\w-]+)|^(gpus?|model|length|batch|users|prompt)\b/) ?? []
    const name = option ?? other
    if (name) named_field(name)?.setAttribute("aria-invalid", "true")
  }
  const state = found => found.fits ? "fits" : /may/.test(found.verdict) ? "maybe" : "no"
  const notes = found => [
    refused.length && `Not a choice of this page, which took its own first value: ${refused.join(", ")}.`,
    found.mixture && is.train() && ["A mixture of experts: ", make("a", "our own measurement", { href: new URL("../evidence/gpu-time/#own-h200", here).href }), " took longer than this band says."],
    is.train() && !much().length && options("epochs", "price").length && "Say how many rows or tokens your data has: then epochs and price count.",
    found.fp16 && "This GPU has no bf16. It is counted as fp16, which takes as long and needs a loss scaler: set fp16=True, not bf16=True.",
    much().length && state(found) === "no" && "Hours and cost are told where it fits.",
    is.train() && field("rows").value && state(found) !== "no" && "Each row is counted as a whole sequence. Shorter rows take less, unless they are padded.",
    found.judged === false && "No measurement of such a step is published: low and high are those of the nearest kind."
  ].filter(Boolean).map(note => make("p", [note].flat(), { className: "planner-note" }))
  // What was asked, as it was understood.
  const echo = found => {
    const known_as = offered.gpus.find(one => one.name === found.gpu)?.label ?? found.gpu, many = found.gpus > 1 ? `${found.gpus} x ` : ""
    const label = is.shared() && field("memory").value ? known_as.replace(/\d+GB$/, `${field("memory").value}GB`) : known_as
    const each = name => number(Number(field(name).value) || Number(defaults0[name]))
    const adapters = found.trained < found.parameters ? found.trained : 0
    const size = is.infer() ? `${number(Number(field("users").value) || 1)} x ${each("prompt")} tokens of prompt, ${each("new")} new` : `${each("batch")} x ${is.pairs() ? "2 x " : ""}${each("length")} tokens`
    return make("p", `${known ? found.model : `${found.model} with your sizes`}, ${number((found.parameters - adapters) / 1e9)} billion parameters${adapters ? ` and ${number(adapters / 1e6)} million of adapters` : ""}; ${size}${many && is.train() ? " on each" : ""}; ${many}${label}`, { className: "planner-echo" })
  }
  const verdict_of = (found, expected, high) => {
    const size = found.gpu_gib, spare = found.fits ? size - high : expected > size ? expected - size : high - size
    const said = { fits: "It fits", maybe: "It may fit", no: "It does not fit" }[state(found)]
    const by = { fits: `${number(spare)} GiB are left`, maybe: expected > size ? `that is ${number(high - size)} GiB more than the system leaves the GPU, and it can be told to leave more` : `in the worst case ${number(spare)} GiB are missing`, no: `${number(spare)} GiB are missing` }[state(found)]
    return make("p", [make("b", said), `: ${number(expected)} to ${number(high)} of ${number(size)} GiB${+field("gpus").value > 1 ? " on each GPU" : ""}; ${by}.`], { className: `planner-verdict ${state(found)}`, role: "status", tabIndex: -1 })
  }
  const verdict = (found, ...bytes) => [echo(found), verdict_of(found, ...bytes), ...notes(found)]
  // Parts of the memory: tensors, what is beside them, and what comes on top in the worst case.
  const COLORED = ["weights", "KV cache", "optimizer state", "activations", "gradients", "temporaries", "gathered weights", "16-bit copies of weights"] // each keeps its color
  const bar = (tensors, beside, most, size, high) => {
    const parts = [...Object.entries(tensors).map(([name, gib]) => [name, gib, `part-${COLORED.includes(name) ? COLORED.indexOf(name) : 7}`]), ["beside tensors", beside, "part-beside"],
      ["more in the worst case", most, "part-most"]].filter(([, gib]) => gib > .005)
    const scale = 98 / Math.max(size, high)
    const row = make("div", parts.map(([name, gib, className]) => {
      const part = make("span", "", { className, title: `${name}: ${number(gib)} GiB` })
      part.style.width = `${gib * scale}%`
      return part
    }), { className: "planner-bar" })
    const line = make("i", "", { title: `the GPU: ${number(size)} GiB` })
    line.style.left = `${size * scale}%`
    row.append(line)
    return [row, make("ul", parts.map(([name, gib, className]) => make("li", [make("span", "", { className }), `${name} ${number(gib)} GiB`])), { className: "planner-legend" })]
  }
  const facts = rows => make("dl", rows.filter(Boolean).flatMap(([name, value]) => [make("dt", name), make("dd", value)]), { className: "planner-facts" })
  const soon = (...seconds) => seconds[0] < 1 ? band(...seconds.map(each => 1000 * each), "ms") : band(...seconds, "s")
  const band = (value, low, high, unit) => [make("b", number(value)), ` ${unit} (${number(low)} to ${number(high)})`]

  const trained = found => {
    const parts = Object.fromEntries(Object.entries(found.memory_gib).map(([name, gib]) => [LABELS[name] ?? name, gib]))
    const beside = found.expected_gib - Object.values(found.memory_gib).reduce((sum, gib) => sum + gib, 0)
    const launches = found.klass === "launch-bound", unit = [is.pairs() ? "pair" : "sequence", is.pairs() ? "pairs" : "sequences"]
    const each = found.gpus > 1 ? " on each GPU" : ""
    const rates = [found.tokens_per_second, found.tokens_per_second * found.seconds / found.high, found.tokens_per_second * found.seconds / found.low]
    const batch = found.largest_batch, no = state(found) === "no"
    const help = [...(answer.getAttribute("aria-busy") === "true" ? [make("p", "What would help …", { className: "planner-note" })] : []), ...helps(found.changes ?? [], found.tokens_per_second)]
    return [
      ...verdict(found, found.expected_gib, found.high_gib), ...(no ? help : []),
      ...bar(parts, beside, found.high_gib - found.expected_gib, found.gpu_gib, found.high_gib),
      facts([
        [no ? "Speed, if it fitted" : "Speed", band(...rates, `tokens/s${found.gpus > 1 ? " of all GPUs" : ""}`)],
        ["A step", `${number(found.seconds)} s, limited by ${LIMITS[found.bound] ?? found.bound}${launches ? `: it waits for launches, so the CPU decides, and it can take ${number(found.high / found.seconds, 2)} times as long` : ""}`],
        found.link_gb_per_s && ["Links", `${[field("gpus-per-node").value !== "1" && `${number(found.link_gb_per_s, 2)} GB/s between GPUs`, found.network_gb_per_s && `${number(found.network_gb_per_s, 2)} GB/s of each GPU to other nodes`].filter(Boolean).join(", ")}, in one direction: assumed`],
        ["Model FLOPs utilization", [`${number(100 * found.mfu, 2)} % of the peak in 16 bits${found.mfu > 1 ? " (it counts attention whole, and a causal one skips half)" : ""}, ${is.full() ? "" : "counted for adapters: a log that counts 6 FLOPs for each parameter and token shows about 1.5 times as much; "}`, make("a", "without recomputation", { href: new URL("../debugging/#mfu", here).href })]],
        field("measured").value && ["Yours", normal(field("measured").value, ...rates, found.mfu)],
        found.hours && state(found) !== "no" && ["Your data", [...band(found.hours, found.hours_low, found.hours_high, "hours"), days(found.hours), ...sooner(found)]],
        found.cost && state(found) !== "no" && ["Cost", [make("b", number(found.cost)), ` (${number(found.cost * found.hours_low / found.hours)} to ${number(found.cost * found.hours_high / found.hours)}), at ${field("price").value} for a GPU and hour`]],
        batch !== undefined && ["Largest batch", batch ? [`${number(batch)} ${unit[+(batch !== 1)]}${each} surely fit${batch === 1 ? "s" : ""} `, +field("batch").value === batch ? "" : take("apply", { batch })] : `not even one ${unit[0]} surely fits`]
      ]),
      ...(no ? [] : help), ...strategies(shown.plan)
    ]
  }
  const days = hours => hours > 48 ? `, ${number(hours / 24)} days` : ""
  // The change that makes most of the difference stands beside the time that it changes.
  const sooner = found => {
    const [best] = found.changes ?? [], times = best?.fits && best.tokens_per_second / found.tokens_per_second
    return times > 1.5 ? ["; ", make("b", number(found.hours / times)), ` hours${days(found.hours / times)} with ${as_in_form(best.change).replace(/^an? /, "")}`] : []
  }
  const normal = (text, expected, low, high, mfu) => {
    const [, digits, percent] = text.match(/^\s*([\d,._]*\d)\s*(%?)/) ?? []
    if (!digits) return "give tokens/s, such as 2000, or MFU, such as 22 %"
    const amount = parseFloat(/^\d+,\d{1,2}$/.test(digits) ? digits.replace(",", ".") : digits.replace(/[,_]/g, "")), mine = percent ? amount / 100 / mfu * expected : amount
    if (!amount) return "give tokens/s, such as 2000, or MFU, such as 22 %"
    if (!percent && amount <= 100 && amount < expected / 20) return `${digits} tokens/s would be ${number(expected / amount)} times less than expected: for a part of the peak write ${number(amount < 1 ? 100 * amount : amount)} %`
    const page = new URL("../debugging/#mfu", here).href
    const said = mfu * mine / expected > 1 ? "more than this GPU computes: is it tokens of all GPUs, and of a second?" : mine < low ? ["slower than nine of ten such runs: ", make("a", "what takes the time", { href: page })] : mine > high ? "faster than nine of ten such runs" : "normal"
    return [`${number(mine / expected)} times what is expected, ${number(100 * mfu * mine / expected, 2)} % of the peak: `, ...[said].flat()]
  }
  const served = found => {
    const speed = found.speed, beside = found.expected_gib - found.weights_gib - found.cache_gib
    return [
      ...verdict(found, found.expected_gib, found.high_gib),
      ...bar({ weights: found.weights_gib, "KV cache": found.cache_gib }, beside, found.high_gib - found.expected_gib, found.gpu_gib, found.high_gib),
      facts([
        speed && ["Speed", band(speed.tokens_per_second, speed.low, speed.high, `tokens/s${+field("users").value > 1 ? " of all users" : ""}`)],
        speed && +field("users").value > 1 && ["For each user", `${number(speed.tokens_per_second / field("users").value)} tokens/s`],
        speed && speed.seconds_to_first_token === null && ["First token", "not predicted: hardly published of such machines"],
        speed && speed.seconds_to_first_token !== null && ["First token", speed.first_low ? soon(speed.seconds_to_first_token, speed.first_low, speed.first_high) : [make("b", number(speed.seconds_to_first_token < 1 ? 1000 * speed.seconds_to_first_token : speed.seconds_to_first_token)), ` ${speed.seconds_to_first_token < 1 ? "ms" : "s"}; no measurement of such weights is published, so there is no low and high`]],
        found.cost_of_million && ["Cost", [make("b", number(found.cost_of_million)), ` (${[found.hours_of_million_low, found.hours_of_million_high].map(hours => number(hours * found.cost_of_million / found.hours_of_million)).join(" to ")}) for a million tokens of answers, their prompts read too, at ${field("price").value} for a GPU and hour, while ${+field("users").value > 1 ? "so many users are" : "this one user is"} busy`]],
        !speed && ["Speed", found.unpredicted ? `none is predicted: ${found.unpredicted}` : "none, since it does not fit"],
        is.shared() && ["Memory of the GPU", [`${number(found.gpu_gib)} GiB of the computer's, unless `, make("a", "told otherwise", { href: new URL(`../hardware/other/#${gpu_of(field("gpu").value)?.name === "strix-halo" ? "strix-halo" : "apple"}`, here).href })]],
        found.users && !is.shared() && ["Users at once", [`${number(found.users)} fit with this prompt and answer `, +field("users").value === found.users ? "" : take("apply", { users: found.users })]],
        found.longest && ["Longest context", `${number(found.longest)} tokens of one user`]
      ]),
      ...(found.changes.length ? [make("h2", "What would fit"), grid(["Change", "Tokens/s", "Memory", ""], found.changes.map(one => line(
        named(one.option), one.tokens_per_second ? number(one.tokens_per_second) : "–", `${number(one.expected_gib)} GiB`, take("apply", changed(one.option)))))] : [])
    ]
  }
  const grid = (heads, rows) => make("div", make("table", [make("thead", make("tr", heads.map(head => head ? make("th", head, { scope: "col" }) : make("td", "")))), make("tbody", rows)]), { className: "scroll" })
  const line = (...cells) => make("tr", cells.map(cell => make("td", cell)))
  const take = (text, changed) => {
    const button = make("button", text, { type: "button", className: text === "apply" ? "planner-take planner-apply" : "planner-take" })
    button.addEventListener("click", () => {
      history.pushState(null, "", location.href) // so that Back takes it back
      for (const [name, value] of Object.entries(changed)) if (field(name).type === "checkbox") field(name).checked = value; else field(name).value = value
      taken = true
      ask()
    })
    return button
  }
  // A change is named by the command's own option.
  const changed = option => {
    if (option.startsWith("without --")) return { [option.slice(10)]: false }
    const said = [...option.matchAll(/--([\w-]+)(?: ([^\s-]\S*))?/g)].map(([, name, value]) => [name, value])
    const method = said.find(([name]) => name === "lora" || name === "qlora")?.[0]
    const fields = said.filter(([name]) => name !== method && !(method && name === "dtype")) // adapters leave the weights in 16 bits
    if (!fields.every(([name]) => field(name))) return undefined
    return { ...(method ? { task: method } : {}), ...Object.fromEntries(fields.map(([name, value]) => [name, field(name).type === "checkbox" ? true : value])) }
  }
  const named = option => [...option.matchAll(/--(\w+) (\S+)/g)].map(([, name, value]) => name === "gpus" ? `${value} GPUs` : FORMATS[value] ?? value).join("; ")
  const as_in_form = change => change.replace("a fused cross entropy", "fused loss") // as the form calls it
  const helps = (changes, now) => changes.length ? [make("h2", "What would help"), grid(["Change", "Tokens/s", "Memory", ""], changes.map(one => line(
    `${as_in_form(one.change)}${is.full() && /--q?lora/.test(one.option) ? ": adapters alone" : ""}`, `${number(one.tokens_per_second)}, ${Math.abs(one.tokens_per_second / now - 1) < .02 ? "as fast" : `${number(one.tokens_per_second / now)} times`}`, `${number(one.expected_gib)} GiB${{ fits: "", maybe: ", may fit", no: ", does not fit" }[state(one)]}`, changed(one.option) ? take("apply", changed(one.option)) : one.option)))] : []
  // One that the form has, with the method that is asked.
  const offered_strategy = one => {
    const [, method, name] = one.strategy.match(/^(?:(Q?LoRA) x )?([\w-]+)$/) ?? [], value = name?.toLowerCase().replace("-", "")
    const task = method?.toLowerCase() ?? "full"
    return task === field("task").value && value !== (field("strategy").value || "fsdp2") && [...field("strategy").options].some(each => each.value === value) ? value : ""
  }
  const strategies = plan => !plan ? [] : plan.error ? [make("h2", "Which strategy"), make("p", plan.error)] : [make("h2", "Which strategy, with this batch"), ...fold(plan, "strategy", "strategies", some => grid(["Strategy", "Memory of a GPU", "Tokens/s", "Why"], some.map(one => line(
    offered_strategy(one) ? make("span", [make("b", one.strategy), " ", take("apply", { strategy: offered_strategy(one) })]) : make("b", one.strategy), `${number(one.expected_gib)} to ${number(one.high_gib)} GiB`, one.offload ? `at most ${number(one.tokens_per_second)}: AdamW on the host is not counted` : one.low ? `${number(one.tokens_per_second)} (${number(one.tokens_per_second * one.seconds / one.high)} to ${number(one.tokens_per_second * one.seconds / one.low)})` : `${number(one.tokens_per_second)}; nobody published such a step`, one.verdict.replace("host_memory", "“Memory of a host”")))))]
  // Those that do not fit are folded away, where others do.
  let unfolded = false
  const fold = (all, one_of, of, shown_as) => {
    const [yes, no] = [all.filter(one => state(one) !== "no"), all.filter(one => state(one) === "no")]
    if (!yes.length || !no.length) return [shown_as(all)]
    const rest = make("details", [make("summary", no.length === 1 ? `1 ${one_of} that does not fit` : `${no.length} ${of} that do not fit`), shown_as(no)], { open: unfolded })
    rest.addEventListener("toggle", () => { unfolded = rest.open })
    return [shown_as(yes), rest]
  }
  // The program of a recipe or a server with the values of the question, where it runs what was asked; the recipes read conversations, which only
  // chat models have a template for, and compute in bf16.
  const UPDATE = { one: 16, many: 64 } // conversations of an update where no accumulation is named: as the programs have it
  const CHAT = /instruct|chat|-it$|qwen3|smollm3|phi-4|gpt-oss/i, WITHOUT_BF16 = ["pascal", "volta", "turing"]
  const program = () => {
    const found = shown.train ?? shown.infer, value = name => field(name).value
    const hub = hub_name()
    if (!hub || !found || "error" in found || state(found) === "no") return []
    if (is.infer()) return [found.server.includes(".gguf") || value("weights") !== "bf16" ? found.server : found.server.replace("MODEL", hub)]
    if (missing().some(name => !argument(name)) || unable(found).length) return []
    const length = `--length ${value("length") || 2048}`, epochs = value("epochs") || 1, at_once = +(value("batch") || 1), accumulation = +(value("accumulation") || 1)
    if (!is.full()) return [`python finetune_8b.py --model ${hub} --data conversations.jsonl --bits ${value("task") === "qlora" ? 4 : 16} ${length} --batch ${accumulation > 1 ? accumulation : UPDATE.one} --epochs ${epochs}`]
    const each = at_once * value("gpus"), parts = accumulation > 1 ? accumulation : Math.max(1, Math.round(UPDATE.many / each))
    return [`torchrun --nproc-per-node ${value("gpus")} finetune_14b.py --model ${hub} --data conversations.jsonl ${length} --batch ${parts * each} --micro-batch ${at_once} --epochs ${Math.ceil(epochs)}`]
  }
  // What of the question the recipe's program has no option for.
  const ARGUMENTS = { "fused loss": "use_liger_kernel=True", "torch.compile": "torch_compile=True" } // of Trainer, which the recipe for one GPU uses
  const EXPLAINED = { "fused loss": "training/loss/#chunked-loss", "torch.compile": "training/throughput/#torch-compile" } // where a program of one's own gets it from
  const argument = name => is.full() ? undefined : ARGUMENTS[name]
  const missing = () => {
    const value = name => field(name).value, on = name => field(name).checked
    return [value("objective") !== "sft" && value("objective").toUpperCase(), !on("checkpointing") && "no checkpointing", on("fused-loss") && "fused loss", on("compile") && "torch.compile",
      value("optimizer") !== "adamw" && `the optimizer ${value("optimizer")}`, !is.full() && value("rank") !== "16" && `rank ${value("rank")}`].filter(Boolean)
  }
  const to = (text, place) => make("a", text, { href: new URL(`../${place}`, here).href })
  // What the command that trains lacks, and where what is asked stands.
  const without_program = found => {
    const lacking = missing(), written = lacking.filter(argument), objective = field("objective").value, gone = lacking.filter(name => !argument(name))
    if (is.infer() || !found || "error" in found || state(found) === "no") return []
    if (objective !== "sft") return [make("p", ["The program: ", objective === "dpo" ? to("DPO with TRL", "training/post-training/#dpo") : to("GRPO with TRL", "training/grpo/#grpo"), "."])]
    if (found.fp16 && !is.full()) return [make("p", ["The programs of the recipes compute in bf16. For a GPU without it: ", to("fine-tune a chat model on a free T4", "notebooks/recipes/finetune_chat_model/"), "."])]
    const cannot = unable(found)
    if (cannot.length) return [make("p", [`No program takes all values of this question: ${[...cannot, ...gone.map(name => `it has no option for ${name}`)].join("; ")}. Begin with: `, is.full() ? is.many() ? to("a loop of your own", "training/own-loop/") : to("training on one GPU", "training/one-gpu/") : is.many() ? field("strategy").value === "ddp" ? to("data-parallel training", "training/data-parallel/") : to("a model larger than each GPU", "training/sharding/") : recipe(), "."])]
    if (gone.length) return [make("p", ["The program of ", recipe(), ` has no option for ${gone.join(", ")}.`, ...gone.filter(name => Object.hasOwn(EXPLAINED, name)).flatMap(name => [" How to add it: ", to(name, EXPLAINED[name]), "."])])]
    return written.length ? [make("p", `Add to its TrainingArguments: ${written.map(name => `${ARGUMENTS[name]} (${name}${name === "fused loss" ? ", after pip install liger-kernel" : ""})`).join(", ")}.`)] : []
  }
  const hub_name = () => offered.models.find(one => one.name === known)?.hub
  // Why the recipe's program cannot run what was asked.
  const unable = found => {
    const hub = hub_name(), value = name => field(name).value, bf16 = !WITHOUT_BF16.includes(gpu_of(found.gpu)?.family)
    const of_adapters = [is.many() && "the recipe for adapters takes one GPU", value("batch") > 1 && "the recipe for adapters takes one sequence at once: accumulate instead"]
    const of_all = [!is.many() && "the recipe for all weights takes several GPUs", is.nodes() && "the recipe takes one node", value("dtype") !== "mixed" && "the recipe keeps fp32 weights",
      value("strategy") !== "fsdp2" && "the recipe takes FSDP2"]
    return [!hub && "its model is not on the Hub by a name that is known here", hub && !CHAT.test(hub) && "the recipes read conversations, and this model has no template for them",
      ...(is.full() ? of_all : of_adapters), !bf16 && "the recipes compute in bf16"].filter(Boolean)
  }
  const to_copy = text => make("pre", [make("code", text), make("button", "Copy", { className: "copy", type: "button" })]) // page.js copies
  // Where such a checkpoint is, and how long a request may be.
  const served_note = () => {
    const name = hub_name()?.split("/")[1], [file] = program(), length = /--max-model-len|--ctx-size/.exec(file)?.[0], kind = FORMATS[field("weights").value], format = /: (\w+)/.exec(kind)?.[1] ?? ""
    const search = name && new URL(`https://huggingface.co/models?${new URLSearchParams({ search: `${name} ${/\.gguf/.test(file) ? "GGUF" : format}`.trim() })}`)
    return is.infer() ? [make("p", [...(/MODEL/.test(file) && search ? [make("a", "Look for it on the Hub", { href: search.href }), ". "] : []), ...(length ? [make("code", length), " is the room of prompt and answer: longer requests need more, up to the longest context above."] : [])])] : []
  }
  const command = () => {
    const lines = [typed(whole_question()), ...(is.many() && !is.grpo() ? [typed(plan())] : [])], found = program(), rest = without_program(shown.train)
    const by = is.infer() ? (found[0] && /MODEL/.test(found[0]) ? `With a checkpoint of it in this format for MODEL (${FORMATS[field("weights").value]}${/\.gguf/.test(found[0]) ? ", a GGUF file" : ""}):` : "With the model's name on the Hub:") : ["By the program of ", recipe(), ":"]
    return make("div", [make("h2", "The same question on your machine"), make("p", ["The command ", to("dryrun", "dryrun/"), is.infer() ? " predicts, and runs no model:" : " predicts, and trains nothing:"]), to_copy(lines.join("\n")),
      ...(found.length || rest.length ? [make("h2", is.infer() ? "To run it" : "To train"), ...(found.length ? [make("p", by), to_copy(found.join("\n")), ...served_note()] : []), ...rest] : [])])
  }
  const recipe = () => { // with the figures of this GPU, where it has some
    const address = new URL(is.full() ? "../recipes/14b-on-8-gpus/" : "../recipes/8b-on-24gb/", here)
    address.searchParams.set("gpu", gpu_of(field("gpu").value)?.name ?? "")
    return make("a", "the recipe", { href: address.href })
  }
  const next = () => {
    const task = field("task").value
    const keys = is.infer() ? ["infer"] : [field("objective").value === "sft" ? "" : "dpo", is.many() ? "many" : "", task].filter(Boolean)
    const root = new URL("../", here)
    return make("p", ["More: ", ...keys.flatMap((key, index) => [index ? ", " : "", make("a", GUIDES[key][0], { href: new URL(GUIDES[key][1], root).href })]), "."])
  }

  // The same question for every GPU, or for every model.
  let rows = [], axis = "", left_out = "", by = "rate"
  let linked // "gpu" or "model": the table that the address shows
  const SORTS = { rate: "tokens/s", cost: "cost", memory: "memory of the GPU" }
  const prices = {} // of a GPU hour, by GPU: the reader's own
  const share = () => {
    const search = new URLSearchParams(location.search), priced = Object.entries(prices).filter(([, value]) => value)
    for (const [name, value] of [["table", axis], ["by", by === "rate" ? "" : by], ["prices", priced.map(pair => pair.join(":")).join(",")]]) {
      search.delete(name) // and to its place: one question has one address
      if (value) search.set(name, value)
    }
    show_address(search)
  }
  const read_table = () => {
    const said = new URLSearchParams(location.search), sort = said.get("by")
    linked = ["gpu", "model"].find(one => one === said.get("table"))
    if (Object.hasOwn(SORTS, sort)) by = sort
    for (const [name, value] of (said.get("prices") ?? "").split(",").map(pair => pair.split(":")))
      if (offered.gpus.some(one => one.name === name) && value > 0) prices[name] = value
  }
  const comparison = () => {
    const button = (text, of) => {
      const element = make("button", text, { type: "button", className: "md-button" })
      element.addEventListener("click", () => compare(of))
      return element
    }
    return make("div", [make("h2", "The same as a table"), button("on every GPU", "gpu"), button("every model on this GPU", "model"), make("div", "", { id: "planner-table" })])
  }
  const compare = of => {
    rows = []
    left_out = ""
    axis = of
    linked = undefined
    table = last += 1 // rows of an earlier table are of another question
    share()
    const memory = field("memory").value // of one machine
    for (const one of offered[`${of}s`]) {
      if (of === "gpu" && is.train() && !one.trains) continue
      const words = question().filter((word, at, all) => of !== "gpu" || !memory || word !== "--memory" && all[at - 1] !== "--memory")
      words[of === "model" ? 1 : words.indexOf("--gpu") + 1] = one.name
      send("row", words, table)
    }
  }
  const another = (words, found) => {
    const name = axis === "model" ? words[1] : words[words.indexOf("--gpu") + 1]
    if ("error" in found) left_out ||= found.error
    else rows.push({ name, ...found })
    tabulate_unless_typing()
  }
  // A table that is made again takes the cursor from a price that is being typed.
  const typing = () => document.activeElement?.matches("#planner-table input")
  const tabulate_unless_typing = () => { if (table && !typing()) tabulate() }
  const hours = one => state(one) === "no" ? 0 : is.infer() ? one.hours_of_million ?? 0 : one.tokens_per_second ? (shown.train?.tokens ?? 0) / 3600 / one.tokens_per_second : 0 // of a million tokens of answers, of all data
  const price = one => Number(axis === "gpu" && one.name !== whole("gpu") ? prices[one.name] : prices[whole("gpu")] ?? field("price").value) || 0 // that of the form is of its GPU
  const cost = one => hours(one) * price(one) * (+field("gpus").value || 1)
  const tabulate = () => {
    const place = document.getElementById("planner-table"), held = place?.contains(document.activeElement) && document.activeElement.dataset.key
    tabulate_anew(place)
    if (held) [...place.querySelectorAll("[data-key]")].find(one => one.dataset.key === held)?.focus({ preventScroll: true })
  }
  const keyed = (element, key) => {
    element.dataset.key = key
    return element
  }
  const tabulate_anew = place => {
    const order = { fits: 0, maybe: 1, no: 2 }, label = one => offered[`${axis}s`].find(each => each.name === one.name)?.label ?? one.name
    const sorts = { rate: one => -(one.tokens_per_second ?? 0), cost: one => cost(one) || 1e12, memory: one => one.gpu_gib }
    rows.sort((one, other) => order[state(one)] - order[state(other)] || sorts[by](one) - sorts[by](other) || sorts.rate(one) - sorts.rate(other))
    const sorted = keyed(make("select", Object.entries(SORTS).map(([value, text]) => make("option", text, { value, selected: value === by }))), "sorted")
    sorted.addEventListener("change", () => { by = sorted.value; share(); tabulate() })
    const priced = one => {
      const total = make("td", cost(one) ? number(cost(one)) : "–"), box = keyed(make("input", "", { inputMode: "decimal", value: price(one) || "", ariaLabel: `Price of an hour of ${label(one)}` }), `price ${one.name}`)
      box.addEventListener("input", () => { if (box.value.includes(",")) box.value = box.value.replace(",", "."); prices[one.name] = box.value; total.textContent = cost(one) ? number(cost(one)) : "–" })
      box.addEventListener("change", share)
      box.addEventListener("keydown", event => { // to the next price
        if (event.key !== "Enter") return
        const boxes = [...place.querySelectorAll("input")]
        boxes[boxes.indexOf(box) + 1]?.focus()
      })
      box.addEventListener("blur", () => setTimeout(() => { if (!place.contains(document.activeElement)) tabulate_unless_typing() }, REST)) // a click that ends it finds its button still there
      return [make("td", box), total]
    }
    const timed = Boolean(shown.train?.tokens), costs = axis === "gpu" && (timed || is.infer()), tight = is.train() && !field("fused-loss").checked && rows.some(one => state(one) === "no")
    const heads = [axis === "gpu" ? "GPU" : "Model", ...(costs ? ["Price of an hour", is.infer() ? "Cost of a million tokens" : "Cost"] : []), ...(timed ? ["Hours of your data"] : []), "Fits", "Memory", "Tokens/s"]
    place?.replaceChildren(...(costs ? [make("label", ["Sorted by ", sorted]), make("p", "Type what you pay for an hour. Enter leads to the next price.", { className: "planner-note" })] : is.train() && !timed ? [make("p", `Say how many rows or tokens your data has: then this table shows hours${axis === "gpu" ? " and cost" : ""}.`, { className: "planner-note" })] : []),
      ...(tight ? [make("p", ["With a fused loss a step needs less memory: ", take("apply", { "fused-loss": true })], { className: "planner-note" })] : []), ...fold(rows, ...(axis === "gpu" ? ["GPU", "GPUs"] : ["model", "models"]), some => grid(heads, some.map(one => {
      const row = line(keyed(take(label(one), { [axis]: one.name }), `name ${one.name}`), ...(timed ? [hours(one) ? number(hours(one)) : "–"] : []), { fits: "yes", maybe: "maybe", no: "no" }[state(one)], `${number(one.expected_gib)} to ${number(one.high_gib)} of ${number(one.gpu_gib)} GiB`,
        one.tokens_per_second ? `${number(one.tokens_per_second)} (${number(one.low)} to ${number(one.high)})` : one.unpredicted && state(one) !== "no" ? make("span", "not predicted", { title: one.unpredicted }) : "–")
      row.firstChild.after(...(costs ? priced(one) : []))
      return row
    }))), ...(left_out ? [make("p", `Some are left out: ${in_page(left_out)}`)] : []))
  }

  if (!navigator.connection?.saveData) start() // Python loads while the lists do
  let offered = { gpus: [], models: [], spellings: { gpus: {} } }
  let firsts = [] // answers that are there before Python is
  const stored = fetch(new URL("../planner/first.json", here)).then(response => response.json()).then(found => { firsts = found }, () => {})
  const filled = fetch(new URL("../planner/choices.json", here)).then(response => response.json()).then(found => {
    offered = found
    document.getElementById("planner-models").append(...found.models.map(one => make("option", "", { value: one.name, label: `${number(one.parameters / 1e9)} billion parameters` })))
    document.getElementById("planner-gpus").append(...found.gpus.map(one => make("option", "", { value: one.name, label: one.label })))
    const ranks = Object.keys(FORMATS), rank = name => ranks.includes(name) ? ranks.indexOf(name) : ranks.length
    field("weights").append(...found.weights.sort((one, other) => rank(one) - rank(other)).map(name => make("option", FORMATS[name] ?? name, { value: name })))
    size("kind").append(...found.families.map(name => make("option", name, { value: name })))
    field("network").append(...found.networks.map(name => make("option", name, { value: name })))
    defaults.weights = "bf16"
  })
  for (const [name, value] of Object.entries(defaults0)) if (field(name).type === "number") field(name).placeholder = value // what an empty field counts as
  Promise.all([filled, stored]).then(() => { read(); read_table(); ask() }, error => answer.replaceChildren(make("p", `The lists of models and GPUs could not be fetched: ${error.message}. Load the page again.`)))
  let eight = false // whether the batch is GRPO's, and nobody's choice
  form.addEventListener("submit", event => event.preventDefault())
  let of_mac = false // whether the format of the weights is that of a Mac, and nobody's choice
  field("gpu").addEventListener("change", () => {
    const before = field("gpu").value
    split_gpu()
    const shared = gpu_of(field("gpu").value)?.trains === false, format = field("weights").value
    if (shared ? format === defaults0.weights : of_mac && format === "q4_k_m") field("weights").value = shared ? "q4_k_m" : defaults0.weights // what is usually run there
    of_mac = shared && field("weights").value === "q4_k_m" && (of_mac || format === defaults0.weights)
    if (field("gpu").value !== before || field("weights").value !== format) ask()
  })
  form.addEventListener("input", event => {
    if (event.target === config) return
    if (event.target === field("batch")) eight = false
    if (event.target === field("price") && event.target.value.includes(",")) event.target.value = event.target.value.replace(",", ".")
    for (const [one, other] of [["rows", "tokens"], ["tokens", "rows"]]) if (event.target === field(one) && field(one).value) field(other).value = "" // both say how much data there is
    if (event.target === field("objective") && (is.grpo() ? field("batch").value === "1" : eight)) { // answers to one prompt, as TRL's default has it
      eight = is.grpo()
      field("batch").value = eight ? "8" : "1"
    }
    clearTimeout(waiting)
    waiting = setTimeout(ask, 120)
  })
  // A list shows what begins like the text in its field, so a click empties it: the whole list is there, and leaving brings the text back.
  for (const one of form.querySelectorAll("input[list]")) {
    one.addEventListener("pointerdown", () => {
      if (document.activeElement === one) return
      one.placeholder = one.value
      one.value = ""
    })
    one.addEventListener("focus", () => {
      one.placeholder = one.value || one.placeholder
      one.select()
    })
    one.addEventListener("blur", () => {
      if (one.value) return
      one.value = one.placeholder
      ask()
    })
  }
  addEventListener("popstate", () => {
    if (location.search === seen) return // a link within the page
    table = 0 // and its order and prices: those of the address come
    by = "rate"
    for (const name of Object.keys(prices)) delete prices[name]
    for (const [name, value] of Object.entries(defaults)) if (typeof value === "boolean") field(name).checked = value; else field(name).value = value
    read()
    read_table()
    ask()
  })
}
