// The page your-model: makes the arguments of `dryrun` from the form, asks the worker, and shows what it says. The address carries the
// question: ?task=lora&model=llama3-8b&gpu=rtx-4090.
{
  const form = document.getElementById("planner"), answer = document.getElementById("planner-answer")
  const here = new URL(document.currentScript.src)
  const LABELS = { parameters: "weights", optimizer: "optimizer state", "weight copies": "16-bit copies of weights", inputs: "inputs" }
  const LIMITS = { mathematics: "mathematics", bandwidth: "memory bandwidth", launches: "launches: the CPU", communication: "communication" }
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
    grpo: () => is.train() && field("objective").value === "grpo", many: () => is.train() && +field("gpus").value > 1,
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
  const defaults0 = { gpus: "1", "gpus-per-node": "8", length: "2048", batch: "1", accumulation: "1", objective: "sft", dtype: "bf16", optimizer: "adamw",
    strategy: "fsdp2", epochs: "1", prompt: "1024", new: "256", weights: "bf16" } // of the command: they need not be typed
  const whole = name => field(name).value.trim() || " "
  const step = () => {
    const task = field("task").value
    return [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "gpus-per-node", "network"), ...(task === "full" ? [] : [`--${task}`]),
      ...options("objective"), ...(is.grpo() ? ["--new", field("written").value] : []), ...options("length", "batch", "accumulation", "dtype", "optimizer"),
      ...["checkpointing", "fused-loss", "compile"].filter(name => field(name).checked).map(name => `--${name}`)]
  }
  const generation = () => [whole("model"), "--gpu", whole("gpu"), ...options("gpus", "prompt", "new"),
    ...(field("users").value > 1 ? ["--batch", field("users").value] : []), ...options("weights")]
  const data = () => {
    const much = options("rows").length ? options("rows") : options("tokens")
    return much.length ? [...much, ...options("epochs", "price")] : []
  }
  const question = (more = []) => is.infer() ? ["infer", ...generation()] : ["train", ...step(), ...options("strategy"), ...more]
  const typed = words => ["dryrun", ...words].map(word => /[^\w./:=@%+,-]/.test(word) ? `"${word}"` : word).join(" ")

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
    }
    for (const fold of form.querySelectorAll("details")) fold.open ||= [...fold.querySelectorAll("[name]")].some(one => one.value !== defaults[one.name])
    try { if (!new URLSearchParams(location.search).has("gpu") && localStorage.getItem("gpu")) field("gpu").value = localStorage.getItem("gpu") } catch {}
  }

  // What comes back.
  let id = 0, waiting, shown = {}
  const worker = new Worker(new URL("planner-worker.mjs", here), { type: "module" })
  const send = (kind, words) => worker.postMessage({ id, kind, asked: words })
  const ask = () => {
    update()
    store()
    id += 1
    shown = {}
    if (!answer.childElementCount) answer.append(make("p", "Loading Python, some 7 MB the first time …", { className: "planner-wait" }))
    answer.classList.add("planner-old")
    send("ask", question([...data(), ...(is.train() && !is.grpo() ? ["--largest-batch"] : [])]))
    if (is.many() && !is.grpo()) send("ask", ["plan", ...step()])
  }
  worker.addEventListener("message", ({ data: { id: of, kind, asked: words, answer: found } }) => {
    if (of !== id) return
    if (kind === "row") return another(words, found)
    shown[words[0]] = found
    answer.classList.remove("planner-old")
    answer.replaceChildren(...show())
  })
  worker.addEventListener("error", event => answer.replaceChildren(make("p", `The page could not start Python: ${event.message ?? "no module workers here"}. On the command line: `), command()))

  const show = () => {
    const found = shown.train ?? shown.infer
    if (!found) return []
    if (found.error) return [make("p", found.error, { className: "planner-verdict no" }), command()]
    return [...(shown.infer ? served(found) : trained(found)), command(), next(), comparison()]
  }
  const state = found => found.fits ? "fits" : /may/.test(found.verdict) ? "maybe" : "no"
  const verdict = (found, expected, high) => {
    const size = found.gpu_gib, spare = found.fits ? size - high : expected > size ? expected - size : high - size
    const said = { fits: "It fits", maybe: "It may fit", no: "It does not fit" }[state(found)]
    const by = { fits: `${number(spare)} GiB are left`, maybe: `in the worst case ${number(spare)} GiB are missing`, no: `${number(spare)} GiB are missing` }[state(found)]
    return [make("p", [make("b", said), `: ${number(expected)} to ${number(high)} of ${number(size)} GiB; ${by}.`], { className: `planner-verdict ${state(found)}` })]
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
    const launches = found.klass === "launch-bound"
    const rates = [found.tokens_per_second, found.tokens_per_second * found.seconds / found.high, found.tokens_per_second * found.seconds / found.low]
    const batch = found.largest_batch
    return [
      ...verdict(found, found.expected_gib, found.high_gib),
      ...bar(parts, beside, found.high_gib - found.expected_gib, found.gpu_gib, found.high_gib),
      facts([
        ["Speed", band(...rates, `tokens/s${found.gpus > 1 ? " of all GPUs" : ""}`)],
        ["A step", `${number(found.seconds)} s, limited by ${LIMITS[found.bound] ?? found.bound}${launches ? ": it waits for the CPU, and can take twice as long" : ""}`],
        ["Model FLOPs utilization", `${number(100 * found.mfu, 2)} %`],
        +field("measured").value && ["Yours", normal(+field("measured").value, ...rates, found.mfu)],
        found.hours && ["Your data", [...band(found.hours, found.hours_low, found.hours_high, "hours"), found.hours > 48 ? `, ${number(found.hours / 24)} days` : ""]],
        found.cost && ["Cost", [make("b", number(found.cost)), ` at ${field("price").value} for a GPU and hour`]],
        batch !== undefined && ["Largest batch", batch ? [`${number(batch)} ${batch === 1 ? "sequence" : "sequences"} surely fit${batch === 1 ? "s" : ""} `, +field("batch").value === batch ? "" : take("take it", { batch })] : "not even one sequence surely fits"]
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
  const table = (heads, rows) => make("div", make("table", [make("thead", make("tr", heads.map(head => make("th", head, { scope: "col" })))), make("tbody", rows)]), { className: "scroll" })
  const line = (...cells) => make("tr", cells.map(cell => make("td", cell)))
  const take = (text, changed) => {
    const button = make("button", text, { type: "button", className: "planner-take" })
    button.addEventListener("click", () => {
      for (const [name, value] of Object.entries(changed)) if (field(name).type === "checkbox") field(name).checked = value; else field(name).value = value
      ask()
      field("model").form.scrollIntoView({ block: "nearest" })
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
  const helps = (changes, now) => changes.length ? [make("h3", "What would help"), table(["Change", "Tokens/s", "Memory", ""], changes.map(one => line(
    one.change, `${number(one.tokens_per_second)}, ${number(one.tokens_per_second / now)} times`, `${number(one.expected_gib)} GiB${one.fits ? "" : ", does not surely fit"}`, changed(one.option) ? take("take it", changed(one.option)) : one.option)))] : []
  const strategies = plan => !plan || plan.error ? [] : [make("h3", "Which strategy"), table(["Strategy", "Memory of a GPU", "Tokens/s", "Why"], plan.slice(0, 10).map(one => line(
    make("b", one.strategy), `${number(one.expected_gib)} to ${number(one.high_gib)} GiB`, one.low ? `${number(one.tokens_per_second)} (${number(one.tokens_per_second * one.seconds / one.high)} to ${number(one.tokens_per_second * one.seconds / one.low)})` : number(one.tokens_per_second), one.verdict)))]
  // The programs of the recipes and servers, with the values of the question; none where the site has no whole program for it.
  const program = () => {
    const of = (kind, name) => offered[kind].find(one => one.name === field(name).value)
    const hub = of("models", "model")?.hub, family = of("gpus", "gpu")?.family, value = name => field(name).value
    if (!hub) return []
    if (is.infer()) return value("weights") !== "bf16" ? [] : [`vllm serve ${hub} --max-model-len ${+value("prompt") + +value("new")}${+value("gpus") > 1 ? ` --tensor-parallel-size ${value("gpus")}` : ""}`]
    if (value("objective") !== "sft" || ["pascal", "volta", "turing"].includes(family)) return [] // the recipes compute in bf16
    const length = `--length ${value("length")}`, batch = value("batch") * value("accumulation"), epochs = value("epochs") || 1
    if (!is.full()) return is.many() ? [] : [`python finetune_8b.py --model ${hub} --data conversations.jsonl --bits ${value("task") === "qlora" ? 4 : 16} ${length} --batch ${batch} --epochs ${epochs}`]
    return !is.many() || is.nodes() || value("strategy") !== "fsdp2" ? [] : [`torchrun --nproc-per-node ${value("gpus")} finetune_14b.py --model ${hub} --data conversations.jsonl ${length} --batch ${batch * value("gpus")} --micro-batch ${value("batch")} --epochs ${Math.ceil(epochs)}`]
  }
  const command = () => {
    const lines = [typed(question([...data()])), ...(is.many() && !is.grpo() ? [typed(["plan", ...step()])] : [])]
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
  let rows = [], axis = ""
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
    axis = of
    for (const one of offered[`${of}s`]) {
      const words = question()
      words[of === "model" ? 1 : words.indexOf("--gpu") + 1] = one.name
      send("row", words)
    }
  }
  const another = (words, found) => {
    const name = axis === "model" ? words[1] : words[words.indexOf("--gpu") + 1]
    if (!found.error) rows.push({ name, ...found })
    const order = { fits: 0, maybe: 1, no: 2 }
    rows.sort((one, other) => order[state(one)] - order[state(other)] || (other.tokens_per_second ?? 0) - (one.tokens_per_second ?? 0))
    const label = one => offered[`${axis}s`].find(each => each.name === one.name)?.label ?? one.name
    document.getElementById("planner-table")?.replaceChildren(table([axis === "gpu" ? "GPU" : "Model", "Fits", "Memory", "Tokens/s"], rows.map(one => line(
      take(label(one), { [axis]: one.name }), { fits: "yes", maybe: "maybe", no: "no" }[state(one)], `${number(one.expected_gib)} to ${number(one.high_gib)} of ${number(one.gpu_gib)} GiB`,
      one.tokens_per_second ? `${number(one.tokens_per_second)} (${number(one.low)} to ${number(one.high)})` : "–"))))
  }

  let offered = { gpus: [], models: [] }
  const filled = fetch(new URL("../planner/choices.json", here)).then(response => response.json()).then(found => {
    offered = found
    document.getElementById("planner-models").append(...found.models.map(one => make("option", "", { value: one.name, label: `${number(one.parameters / 1e9)} billion parameters` })))
    document.getElementById("planner-gpus").append(...found.gpus.map(one => make("option", "", { value: one.name, label: one.label })))
    field("weights").append(...found.weights.map(name => make("option", name, { value: name })))
    field("network").append(...found.networks.map(name => make("option", name, { value: name })))
    defaults.weights = "bf16"
  })
  filled.catch(() => {}).then(() => {
    read()
    ask()
  })
  form.addEventListener("submit", event => event.preventDefault())
  form.addEventListener("input", () => {
    clearTimeout(waiting)
    waiting = setTimeout(ask, 250)
  })
  addEventListener("popstate", () => { read(); ask() })
}
