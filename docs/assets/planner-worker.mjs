// Python in the browser, and dryrun in it: answers what planner.js asks. A model's profile is fetched when it is asked about.
const at = new URL("../planner/", import.meta.url)
const get = async name => {
  const response = await fetch(new URL(name, at))
  if (!response.ok) throw new Error(`${name}: ${response.status}`)
  return response
}
// Python's own file comes packed, since not every host packs it, and says how much of it is there.
const fetched = self.fetch
self.fetch = async (what, options) => {
  if (!String(what.url ?? what).endsWith("pyodide.asm.wasm")) return fetched(what, options)
  const response = await get("python/pyodide.asm.wasm.packed"), size = Number(response.headers.get("content-length"))
  let loaded = 0
  const counted = new TransformStream({ transform(chunk, out) {
    loaded += chunk.length
    postMessage({ kind: "loading", loaded, size })
    out.enqueue(chunk)
  } })
  return new Response(response.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": "application/wasm" } })
}
const start = async () => {
  const { loadPyodide } = await import(new URL("python/pyodide.mjs", at).href)
  const [python, library] = await Promise.all([
    loadPyodide({ indexURL: new URL("python/", at).href }),
    get("dryrun.zip").then(response => response.arrayBuffer())
  ])
  python.unpackArchive(library, "zip")
  python.FS.mkdirTree("dryrun/data/profiles")
  const answer = python.runPython("import json\nfrom dryrun import web\nlambda kind, asked: json.dumps(getattr(web, kind)(json.loads(asked)))")
  return { python, answer }
}
const ready = start()
const profiles = new Map()
const profile = async ({ python, answer }, asked) => {
  const model = JSON.parse(answer("named", JSON.stringify(asked)))
  const file = model.profile
  if (!file) return model
  if (!profiles.has(file)) profiles.set(file, get(`profiles/${file}`).then(response => response.arrayBuffer()).then(
    bytes => python.FS.writeFile(`dryrun/data/profiles/${file}`, new Uint8Array(bytes))))
  await profiles.get(file).catch(error => {
    profiles.delete(file)
    if (!error.message.endsWith("404")) throw error // a model without a profile is answered by name
  })
  return model
}

// A newer question ends what an older one asked; a newer table the rows of an older one.
const newest = { question: 0, row: 0 }
addEventListener("message", async ({ data: { id, kind, asked } }) => {
  const of = kind === "row" ? "row" : "question"
  newest[of] = Math.max(newest[of], id)
  try {
    const { python, answer } = await ready
    if (kind === "in_words") return postMessage({ id, kind, asked, answer: JSON.parse(answer(kind, JSON.stringify(asked))) })
    const model = await profile({ python, answer }, asked[1])
    await new Promise(done => setTimeout(done)) // so that a newer question is seen
    if (id < newest.question || kind === "row" && id < newest.row) return
    postMessage({ id, kind, asked, model, answer: JSON.parse(answer(kind, JSON.stringify(asked))) })
  } catch (error) {
    if (error instanceof TypeError && !navigator.onLine) error.message = "there is no network now, and this model's record is not here yet"
    postMessage({ id, kind, asked, answer: { error: `The page could not answer: ${error.message}.${kind === "in_words" ? "" : " The command below answers the same."}` } })
  }
})
