// Python in the browser, and dryrun in it: answers what the planner asks. A model's profile is fetched when it is asked
// about.

/**
 * @typedef {{runPython: (code: string) => any, unpackArchive: (file: ArrayBuffer, format: string) => void, FS: any}}
 * Pyodide
 */
/** @typedef {{python: Pyodide, answer: (kind: string, asked: string) => string}} Ready */

const at = new URL("../planner/", import.meta.url)

/** @param {string} name */
const get = async name => {
  const response = await fetch(new URL(name, at))
  if (!response.ok) throw new Error(`${name}: ${response.status}`)
  return response
}

// Python's own file comes packed, since not every host packs it, and says how much of it is there.
const fetched = self.fetch
self.fetch = async (what, options) => {
  if (!String(what instanceof Request ? what.url : what).endsWith("pyodide.asm.wasm")) return fetched(what, options)
  const response = await get("python/pyodide.asm.wasm.packed"), size = Number(response.headers.get("content-length"))
  if (!response.body) throw new Error("pyodide.asm.wasm is empty")
  let loaded = 0
  const counted = new TransformStream({
    transform: (chunk, out) => {
      loaded += chunk.length
      postMessage({ kind: "loading", loaded, size })
      out.enqueue(chunk)
    }
  })
  const unpacked = response.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip"))
  return new Response(unpacked, { headers: { "Content-Type": "application/wasm" } })
}

const CODE = "import json\nfrom dryrun.door import web\n" +
  "lambda kind, asked: json.dumps(getattr(web, kind)(json.loads(asked)))"

/** @returns {Promise<Ready>} */
const start = async () => {
  const { loadPyodide } = await import(new URL("python/pyodide.mjs", at).href)
  /** @type {[Pyodide, ArrayBuffer]} */
  const [python, library] = await Promise.all([
    loadPyodide({ indexURL: new URL("python/", at).href }),
    get("dryrun.zip").then(response => response.arrayBuffer())
  ])
  python.unpackArchive(library, "zip")
  python.FS.mkdirTree("dryrun/data/profiles")
  return { python, answer: python.runPython(CODE) }
}
const ready = start()

/** @type {Map<string, Promise<void>>} */
const profiles = new Map()
/** @param {Ready} ready @param {string} asked the name of a model */
const profile = async ({ python, answer }, asked) => {
  const model = JSON.parse(answer("named", JSON.stringify(asked))), file = model.profile
  if (!file) return model
  const written = profiles.get(file) ?? get(`profiles/${file}`).then(response => response.arrayBuffer()).then(
    bytes => python.FS.writeFile(`dryrun/data/profiles/${file}`, new Uint8Array(bytes)))
  profiles.set(file, written)
  await written.catch(error => {
    profiles.delete(file)
    if (!error.message.endsWith("404")) throw error // a model without a profile is answered by name
  })
  return model
}

/** @param {string} kind @param {unknown} error */
const refusal = (kind, error) => {
  const isOffline = error instanceof TypeError && !navigator.onLine
  const why = isOffline ? "there is no network now, and this model's record is not here yet"
    : error instanceof Error ? error.message : String(error)
  const hint = kind === "in_words" ? "" : " The command below answers the same."
  const problem = `The page could not answer: ${why}.${hint}`
  const code = hint ? "page" : ""
  return { error: problem, refusal: { code, field: "", given: null, problem, fix: "", nearest: [] } }
}

// A newer question ends what an older one asked; a newer table the rows of an older one.
const newest = { question: 0, row: 0 }
addEventListener("message", async ({ data: { id, kind, asked } }) => {
  const of = kind === "row" ? "row" : "question"
  newest[of] = Math.max(newest[of], id)
  try {
    const { python, answer } = await ready
    const ask = () => JSON.parse(answer(kind, JSON.stringify(asked)))
    if (kind === "in_words") return postMessage({ id, kind, asked, answer: ask() })
    const model = await profile({ python, answer }, asked[1])
    await new Promise(done => setTimeout(done)) // so that a newer question is seen
    if (id < newest.question || kind === "row" && id < newest.row) return
    postMessage({ id, kind, asked, model, answer: ask() })
  } catch (error) {
    postMessage({ id, kind, asked, answer: refusal(kind, error) })
  }
})
