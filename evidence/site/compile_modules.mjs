// node compile_modules.mjs PYODIDE FROM.zip TO.zip: a zip file with its Python modules compiled by the Python that the browser runs.
// A page that is given sources compiles them at each visit, which takes longer than all else that it does first.
import { readFileSync, writeFileSync } from "node:fs"
import { pathToFileURL } from "node:url"

const [folder, from, to] = process.argv.slice(2)
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href)
const python = await loadPyodide({ indexURL: folder })
python.FS.writeFile("/from.zip", readFileSync(from))
python.runPython(`
import importlib.util
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc as pyc

with zipfile.ZipFile("/from.zip") as sources, zipfile.ZipFile("/to.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
    for entry in sources.infolist():
        if entry.is_dir():
            continue
        name, content = entry.filename, sources.read(entry)
        if name.endswith(".py"):
            code = compile(content, name, "exec", dont_inherit=True, optimize=2)
            name, content = name + "c", bytes(pyc(code, importlib.util.source_hash(content), False))  # False: never compared with a source
        packed.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
`)
writeFileSync(to, python.FS.readFile("/to.zip"))
