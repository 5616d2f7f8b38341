// The page your-model: makes the arguments of `dryrun` from the form, asks the worker, and shows what it says. The address carries the
// question: ?task=lora&model=llama3-8b&gpu=rtx-4090.
{
  const form = document.getElementById("planner"), answer = document.getElementById("planner-answer")
  const here = new URL(document.currentScript.src)
  const LABELS = { parameters: "weights", optimizer: "optimizer state", "weight copies": "16-bit copies of weights", inputs: "inputs" }
  const LIMITS = { mathematics: "mathematics", bandwidth: "memory bandwidth", launches: "launches", communication: "communication" }
  const GUIDES = {
    lora: ["LoRA", "training/adapters-and-offload/#lora"], qlora: ["QLoRA", "training/adapters-and-offload/#qlora"],
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

  // Which fields belong to the question.
  const is = {
    train: () => field("task").value !== "infer", infer: () => field("task").value === "infer", full: () => field("task").value === "full",
    adapters: () => is.train() && !is.full(),
    grpo: () => is.train() && field("objective").value === "grpo", pairs: () => is.train() && field("objective").value === "dpo", many: () => is.train() && +field("gpus").value > 1,
    nodes: () => is.many() && +field("gpus").value > +field("gpus-per-node").value
  }
  const asked = name => {
    for (let part = field(name).closest("[data-for-task]"); part; part = part.parentElement.closest("[data-for-task]")) if (!is[part.dataset.forTask]()) return false
    return true
  }
  const update = () => form.querySelectorAll("[data-for-task]").forEach(part => { part.hidden = !is[part.dataset.forTask]() })

  // The arguments of the command.
  const options = (...names) => names.filter(name => asked(name) && field(name).value && field(name).value !== defaults0[name])
    .flatMap(name => [`--${name}`, field(name).value])
  const defaults0 = { gpus: "1", "gpus-per-node": "8", rank: "16", length: "2048", batch: "1", accumulation: "1", objective: "sft", dtype: "bf16", optimizer: "adamw",
    strategy: "fsdp2", epochs: "1", prompt: "1024", new: "256", weights: "bf16" } // of the command: they need not be typed
  const whole = name => field(name).value.trim() || " "
  const step = () => {
    const task = field("task").value
    return [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "gpus-per-node", "network"), ...(task === "full" ? [] : [`--${task}`, ...options("rank").slice(1)]),
      ...options("objective"), ...(is.grpo() ? ["--new", field("written").value] : []), ...options("length", "batch", "accumulation", "dtype", "optimizer"),
      ...["checkpointing", "fused-loss", "compile"].filter(name => field(name).checked).map(name => `--${name}`)]
  }
  const generation = () => [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "prompt", "new"),
    ...(field("users").value && field("users").value !== "1" ? ["--batch", field("users").value] : []), ...options("weights")]
  const much = () => is.infer() ? [] : options("rows", "tokens")
  const data = () => much().length ? [...much(), ...options("epochs", "price")] : []
  const question = (more = []) => is.infer() ? ["infer", ...generation()] : ["train", ...step(), ...options("strategy"), ...more]
  const whole_question = () => question([...data(), ...(is.train() && !is.grpo() ? ["--largest-batch"] : [])])
  const typed = words => ["dryrun", ...words].map(word => /[^\w./:=@%+,-]/.test(word) ? `'${word.replaceAll("'", "'\\''")}'` : word).join(" ") // the address may be anybody's

  // The address.
  const store = () => {
    const search = new URLSearchParams()
    for (const one of form.elements) {
      const value = one.type === "checkbox" ? one.checked : one.value
      if (one.name && asked(one.name) && value !== defaults[one.name]) search.set(one.name, one.type === "checkbox" ? Number(value) : value)
    }
    for (const name of ["task", "model", "gpu"]) search.set(name, field(name).value)
    history.replaceState(null, "", `?${search}${location.hash}`)
  }
  const read = () => {
    for (const [name, value] of new URLSearchParams(location.search)) {
      const one = field(name)
      if (!one?.name) continue
      if (one.type === "checkbox") one.checked = value === "1"
      else one.value = value
      if (one.type !== "checkbox" && one.value !== value) { // no such choice
        one.value = defaults[name]
        refused.push(`${name}=${value}`)
      }
    }
    for (const fold of form.querySelectorAll("details")) fold.open ||= [...fold.querySelectorAll("[name]")].some(one => one.value !== defaults[one.name])
    try { if (!new URLSearchParams(location.search).has("gpu") && localStorage.getItem("gpu")) field("gpu").value = localStorage.getItem("gpu") } catch {}
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
  let id = 0, waiting, shown = {}, known = ""
  let worker, asking = false
  const offer = () => {
    const button = make("button", "Ask: this loads Python, some 13 MB the first time", { type: "button", className: "md-button" })
    button.addEventListener("click", () => { asking = true; answer.replaceChildren(); ask() })
    answer.replaceChildren(button, command())
  }
  const start = () => {
    worker = new Worker(new URL("planner-worker.mjs", here), { type: "module" })
    worker.addEventListener("message", ({ data: { id: of, kind, asked: words, model, answer: found } }) => {
      if (kind === "in_words") return words === config.value && pasted(found) // else another one was pasted meanwhile
      if (of !== id && of !== table) return
      if (kind === "row") return another(words, found)
      shown[words[0]] = found
      known = model?.name // its own, where an alias was typed
      fill(model?.words ?? "")
      answer.classList.remove("planner-old")
      answer.replaceChildren(...show())
    })
    worker.addEventListener("error", event => answer.replaceChildren(make("p", `The page could not start Python: ${event.message ?? "this browser has no module workers"}. On the command line:`), command()))
  }
  const send = (kind, words) => {
    if (!worker) start()
    worker.postMessage({ id, kind, asked: words })
  }
  const pasted = found => {
    said.textContent = found.error ?? `Its sizes are in the fields above${found.left_out ? `, without its ${found.left_out} part` : ""}.${found.stored_in ? ` Its weights are published in ${found.stored_in}: here they are of the kind that you choose.` : ""}`
    if (found.error) return
    config.value = ""
    config.blur()
    field("model").value = found.model
    ask()
  }
  const refused = [] // of the address
  const ask = () => {
    update()
    store()
    if (!worker && navigator.connection?.saveData && !asking) return offer()
    if (!worker) start()
    id += 1
    shown = {}
    if (!answer.childElementCount) answer.append(make("p", "Loading Python, some 13 MB the first time …", { className: "planner-wait" }))
    answer.classList.add("planner-old")
    send("ask", whole_question())
    if (is.many() && !is.grpo()) send("ask", ["plan", ...step()])
  }
  const show = () => {
    const found = shown.train ?? shown.infer
    if (!found) return []
    if ("error" in found) return [make("p", found.error, { className: "planner-verdict no" }), command()]
    return [...(shown.infer ? served(found) : trained(found)), command(), next(), comparison()]
  }
  const state = found => found.fits ? "fits" : /may/.test(found.verdict) ? "maybe" : "no"
  const notes = found => [
    refused.length && `Not a choice of this page, so the first one was taken: ${refused.join(", ")}.`,
    found.mixture && is.train() && ["A mixture of experts: ", make("a", "our own measurement", { href: new URL("../evidence/gpu-time/#own-h200", here).href }), " took far longer and more memory than this band says."],
    is.train() && !much().length && options("epochs", "price").length && "Say how many rows or tokens your data has: then epochs and price count.",
    found.judged === false && "Nobody has published such a step: low and high are those of the nearest kind."
  ].filter(Boolean).map(note => make("p", [note].flat(), { className: "planner-note" }))
  const verdict = (found, expected, high) => {
    const size = found.gpu_gib, spare = found.fits ? size - high : expected > size ? expected - size : high - size
    const said = { fits: "It fits", maybe: "It may fit", no: "It does not fit" }[state(found)]
    const by = { fits: `${number(spare)} GiB are left`, maybe: `in the worst case ${number(spare)} GiB are missing`, no: `${number(spare)} GiB are missing` }[state(found)]
    return [make("p", [make("b", said), `: ${number(expected)} to ${number(high)} of ${number(size)} GiB; ${by}.`], { className: `planner-verdict ${state(found)}`, role: "status", tabIndex: -1 }), ...notes(found)]
  }
  // Parts of the memory: tensors, what is beside them, and what comes on top in the worst case.
  const bar = (tensors, beside, most, size, high) => {
    const parts = [...Object.entries(tensors).map(([name, gib], index) => [name, gib, `part-${index % 8}`]), ["beside these", beside, "part-beside"],
      ["in the worst case", most, "part-most"]].filter(([, gib]) => gib > .005)
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
  const band = (value, low, high, unit) => [make("b", number(value)), ` ${unit} (${number(low)} to ${number(high)})`]

  const trained = found => {
    const parts = Object.fromEntries(Object.entries(found.memory_gib).map(([name, gib]) => [LABELS[name] ?? name, gib]))
    const beside = found.expected_gib - Object.values(found.memory_gib).reduce((sum, gib) => sum + gib, 0)
    const launches = found.klass === "launch-bound", unit = [is.pairs() ? "pair" : "sequence", is.pairs() ? "pairs" : "sequences"]
    const each = found.gpus > 1 ? " on each GPU" : ""
    const rates = [found.tokens_per_second, found.tokens_per_second * found.seconds / found.high, found.tokens_per_second * found.seconds / found.low]
    const batch = found.largest_batch
    return [
      ...verdict(found, found.expected_gib, found.high_gib),
      ...bar(parts, beside, found.high_gib - found.expected_gib, found.gpu_gib, found.high_gib),
      facts([
        ["Speed", band(...rates, `tokens/s${found.gpus > 1 ? " of all GPUs" : ""}`)],
        ["A step", `${number(found.seconds)} s, limited by ${LIMITS[found.bound] ?? found.bound}${launches ? `: it waits for launches, so the CPU decides, and it can take ${number(found.high / found.seconds, 2)} times as long` : ""}`],
        ["Model FLOPs utilization", `${number(100 * found.mfu, 2)} %`],
        +field("measured").value && ["Yours", normal(+field("measured").value, ...rates, found.mfu)],
        found.hours && ["Your data", [...band(found.hours, found.hours_low, found.hours_high, "hours"), found.hours > 48 ? `, ${number(found.hours / 24)} days` : ""]],
        found.cost && ["Cost", [make("b", number(found.cost)), ` (${number(found.cost * found.hours_low / found.hours)} to ${number(found.cost * found.hours_high / found.hours)}), at ${field("price").value} for a GPU and hour`]],
        batch !== undefined && ["Largest batch", batch ? [`${number(batch)} ${unit[+(batch !== 1)]}${each} surely fit${batch === 1 ? "s" : ""} `, +field("batch").value === batch ? "" : take("take it", { batch })] : `not even one ${unit[0]} surely fits`]
      ]),
      ...helps(found.changes ?? [], found.tokens_per_second), ...strategies(shown.plan)
    ]
  }
  const normal = (mine, expected, low, high, mfu) => {
    const page = new URL("../training/throughput/", here).href
    const said = mine < low ? ["slower than nine of ten such runs: ", make("a", "what takes the time", { href: page })] : mine > high ? "faster than nine of ten such runs" : "normal"
    return [`${number(mine / expected)} times what is expected, ${number(100 * mfu * mine / expected, 2)} % of the peak: `, ...[said].flat()]
  }
  const served = found => {
    const speed = found.speed, beside = found.expected_gib - found.weights_gib - found.cache_gib
    return [
      ...verdict(found, found.expected_gib, found.high_gib),
      ...bar({ weights: found.weights_gib, "KV cache": found.cache_gib }, beside, found.high_gib - found.expected_gib, found.gpu_gib, found.high_gib),
      facts([
        speed && ["Speed", band(speed.tokens_per_second, speed.low, speed.high, "tokens/s of all users")],
        speed && +field("users").value > 1 && ["For each user", `${number(speed.tokens_per_second / field("users").value)} tokens/s`],
        speed && ["First token", speed.first_low ? band(1000 * speed.seconds_to_first_token, 1000 * speed.first_low, 1000 * speed.first_high, "ms") : `${number(1000 * speed.seconds_to_first_token)} ms`],
        !speed && ["Speed", "none is predicted for this GPU or format"],
        found.users && ["Users at once", [`${number(found.users)} fit with this prompt and answer `, +field("users").value === found.users ? "" : take("take it", { users: found.users })]],
        found.longest && ["Longest context", `${number(found.longest)} tokens of one user`]
      ])
    ]
  }
  const grid = (heads, rows) => make("div", make("table", [make("thead", make("tr", heads.map(head => make("th", head, { scope: "col" })))), make("tbody", rows)]), { className: "scroll" })
  const line = (...cells) => make("tr", cells.map(cell => make("td", cell)))
  const take = (text, changed) => {
    const button = make("button", text, { type: "button", className: "planner-take" })
    button.addEventListener("click", () => {
      for (const [name, value] of Object.entries(changed)) if (field(name).type === "checkbox") field(name).checked = value; else field(name).value = value
      ask()
      form.scrollIntoView({ block: "nearest" })
      field("model").focus({ preventScroll: true }) // the button is replaced with the answer
    })
    return button
  }
  // A change is named by the command's own option.
  const changed = option => {
    const [, name, value] = option.match(/^--([\w-]+) ?(\S*)/) ?? []
    if (option.startsWith("without --")) return { [option.slice(10)]: false }
    if (name === "lora") return { task: "lora" }
    if (name === "qlora") return { task: "qlora", checkpointing: true }
    return field(name) && { [name]: field(name).type === "checkbox" ? true : value }
  }
  const helps = (changes, now) => changes.length ? [make("h3", "What would help"), grid(["Change", "Tokens/s", "Memory", ""], changes.map(one => line(
    one.change, `${number(one.tokens_per_second)}, ${number(one.tokens_per_second / now)} times`, `${number(one.expected_gib)} GiB${one.fits ? "" : ", does not surely fit"}`, changed(one.option) ? take("take it", changed(one.option)) : one.option)))] : []
  const strategies = plan => !plan ? [] : plan.error ? [make("h3", "Which strategy"), make("p", plan.error)] : [make("h3", "Which strategy"), grid(["Strategy", "Memory of a GPU", "Tokens/s", "Why"], plan.slice(0, 10).map(one => line(
    make("b", one.strategy), `${number(one.expected_gib)} to ${number(one.high_gib)} GiB`, one.low ? `${number(one.tokens_per_second)} (${number(one.tokens_per_second * one.seconds / one.high)} to ${number(one.tokens_per_second * one.seconds / one.low)})` : number(one.tokens_per_second), one.verdict)))]
  // The program of a recipe or a server with the values of the question, where it runs what was asked; the recipes read conversations, which only
  // chat models have a template for, and compute in bf16.
  const CHAT = /instruct|chat|-it$|qwen3|smollm3|phi-4|gpt-oss/i, WITHOUT_BF16 = ["pascal", "volta", "turing"]
  const program = () => {
    const found = shown.train ?? shown.infer, value = name => field(name).value
    const hub = offered.models.find(one => one.name === known)?.hub, family = offered.gpus.find(one => one.name === found?.gpu)?.family
    if (!hub || !found || "error" in found || state(found) === "no") return []
    if (is.infer()) return [found.server.replace("MODEL", hub)].filter(() => value("weights") === "bf16")
    const other = value("objective") !== "sft" || !field("checkpointing").checked || field("fused-loss").checked || field("compile").checked || value("optimizer") !== "adamw" || (!is.full() && value("rank") !== "16")
    if (other || !CHAT.test(hub) || WITHOUT_BF16.includes(family)) return []
    const length = `--length ${value("length") || 2048}`, epochs = value("epochs") || 1, batch = (value("batch") || 1) * (value("accumulation") || 1)
    if (!is.full()) return is.many() || batch !== +(value("accumulation") || 1) ? [] : [`python finetune_8b.py --model ${hub} --data conversations.jsonl --bits ${value("task") === "qlora" ? 4 : 16} ${length} --batch ${batch} --epochs ${epochs}`]
    return !is.many() || is.nodes() || value("strategy") !== "fsdp2" || value("dtype") !== "mixed" ? [] : [`torchrun --nproc-per-node ${value("gpus")} finetune_14b.py --model ${hub} --data conversations.jsonl ${length} --batch ${batch * value("gpus")} --micro-batch ${value("batch") || 1} --epochs ${Math.ceil(epochs)}`]
  }
  const command = () => {
    const lines = [typed(whole_question()), ...(is.many() && !is.grpo() ? [typed(["plan", ...step()])] : [])]
    const found = program()
    return make("div", [make("h3", "What to type"), make("pre", make("code", lines.join("\n"))),
      ...(found.length ? [make("p", is.infer() ? "And to run it:" : ["And to train, by the program of ", recipe(), ":"]), make("pre", make("code", found.join("\n")))] : [])])
  }
  const recipe = () => make("a", "the recipe", { href: new URL(is.full() ? "../recipes/14b-on-8-gpus/" : "../recipes/8b-on-24gb/", here).href })
  const next = () => {
    const task = field("task").value
    const keys = is.infer() ? ["infer"] : [field("objective").value === "sft" ? "" : "dpo", is.many() ? "many" : "", task].filter(Boolean)
    const root = new URL("../", here)
    return make("p", ["More: ", ...keys.flatMap((key, index) => [index ? ", " : "", make("a", GUIDES[key][0], { href: new URL(GUIDES[key][1], root).href })]), "."])
  }

  // The same question for every GPU, or for every model.
  let rows = [], axis = "", table = 0, left_out = ""
  const comparison = () => {
    const button = (text, of) => {
      const element = make("button", text, { type: "button", className: "md-button" })
      element.addEventListener("click", () => compare(of))
      return element
    }
    return make("div", [make("h3", "The same as a table"), button("on every GPU", "gpu"), button("every model on this GPU", "model"), make("div", "", { id: "planner-table" })])
  }
  const compare = of => {
    rows = []
    left_out = ""
    axis = of
    table = id += 1 // rows of an earlier table are of another question
    for (const one of offered[`${of}s`]) {
      const words = question()
      words[of === "model" ? 1 : words.indexOf("--gpu") + 1] = one.name
      send("row", words)
    }
  }
  const another = (words, found) => {
    const name = axis === "model" ? words[1] : words[words.indexOf("--gpu") + 1]
    if ("error" in found) left_out ||= found.error
    else rows.push({ name, ...found })
    const order = { fits: 0, maybe: 1, no: 2 }
    rows.sort((one, other) => order[state(one)] - order[state(other)] || (other.tokens_per_second ?? 0) - (one.tokens_per_second ?? 0))
    const label = one => offered[`${axis}s`].find(each => each.name === one.name)?.label ?? one.name
    document.getElementById("planner-table")?.replaceChildren(grid([axis === "gpu" ? "GPU" : "Model", "Fits", "Memory", "Tokens/s"], rows.map(one => line(
      take(label(one), { [axis]: one.name }), { fits: "yes", maybe: "maybe", no: "no" }[state(one)], `${number(one.expected_gib)} to ${number(one.high_gib)} of ${number(one.gpu_gib)} GiB`,
      one.tokens_per_second ? `${number(one.tokens_per_second)} (${number(one.low)} to ${number(one.high)})` : "–"))), ...(left_out ? [make("p", `Some are left out: ${left_out}`)] : []))
  }

  let offered = { gpus: [], models: [] }
  const filled = fetch(new URL("../planner/choices.json", here)).then(response => response.json()).then(found => {
    offered = found
    document.getElementById("planner-models").append(...found.models.map(one => make("option", "", { value: one.name, label: `${number(one.parameters / 1e9)} billion parameters` })))
    document.getElementById("planner-gpus").append(...found.gpus.map(one => make("option", "", { value: one.name, label: one.label })))
    field("weights").append(...found.weights.map(name => make("option", name, { value: name })))
    size("kind").append(...found.families.map(name => make("option", name, { value: name })))
    field("network").append(...found.networks.map(name => make("option", name, { value: name })))
    defaults.weights = "bf16"
  })
  filled.then(() => { read(); ask() }, error => answer.replaceChildren(make("p", `The lists of models and GPUs could not be fetched: ${error.message}. Load the page again.`)))
  form.addEventListener("submit", event => event.preventDefault())
  form.addEventListener("input", event => {
    if (event.target === config) return
    clearTimeout(waiting)
    waiting = setTimeout(ask, 250)
  })
  addEventListener("popstate", () => { read(); ask() })
}
