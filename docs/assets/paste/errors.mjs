// The errors in a log.

const MOST = 3 // errors shown
const READ = 500_000 // letters of a log, from its end
const WIDE = 1000 // letters of a line
const BELOW = 2 // lines of an error that follow its first
const ALIKE = 80 // letters in which two errors are one

// How the line of an error begins in Python, or what C++, the shell and the kernel say instead.
const RANK = /^\s*(?:\[rank ?\d+\]:\s?|\[\d+\]:\s?|\(\w+ pid=\d+\)\s?)/
const RAISED = /^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Failure)\b(?::|$)/
const SAID = new RegExp(String.raw`\b(?:error|assertion .*failed|fatal|failed|killed|aborted|segmentation fault|` +
  String.raw`out of memory|timed? ?out|SIG[A-Z]{3,})\b`, "i")
const WARNED = /\w*Warning: /
// What failed stands elsewhere.
const SAYS_NOTHING = /ChildFailedError|CalledProcessError|^\s*(?:Traceback|During handling|The above exception)/
const FRAME = /^\s*File "/, CODE = /^\s{4,}\S/ // of a traceback: code stands below its frame
const NOISE = /%\|.*[|\]]|^\s*\{'\w+': |^\[?\d{4}-\d\d-\d\d/ // bars of progress, losses, lines with a date

/** @param {string[]} all @returns {string[]} "" for a line that says nothing of an error, and ends one */
const without = all => {
  let isFramed = false
  return all.map(line => {
    isFramed = FRAME.test(line) || isFramed && CODE.test(line)
    return isFramed || NOISE.test(line) ? "" : line
  })
}

/** @param {string} text */
const alike = text => text.replace(/\d+/g, "0").slice(0, ALIKE)

/** @param {string} log @returns {string[]} its different errors, the first first: the others often follow from it */
export const errors = log => {
  const all = log.slice(-READ).split("\n").map(line => line.slice(0, WIDE).replace(RANK, ""))
    .filter(line => line.trim())
  const lines = without(all), telling = lines.filter(Boolean)
  /** @param {string[]} some */
  const last = some => some.slice(-BELOW - 1).join(" ")
  if (all.length <= BELOW + 1 || !telling.length) return [last(telling.length ? telling : all)]
  /** @param {RegExp} pattern */
  const starts = pattern => lines.flatMap((line, number) =>
    pattern.test(line) && !SAYS_NOTHING.test(line) ? [number] : [])
  /** @param {number} number With what belongs to it in the lines below. */
  const whole = number => {
    const below = lines.slice(number + 1, number + 1 + BELOW)
    const end = below.findIndex(line => !line || [RAISED, WARNED, SAYS_NOTHING].some(pattern => pattern.test(line)))
    return [lines[number], ...(end < 0 ? below : below.slice(0, end))].join(" ")
  }
  const found = [RAISED, SAID].map(starts).find(some => some.length)?.map(whole) ??
    [last(telling.filter(line => !WARNED.test(line)))]
  const texts = found.some(Boolean) ? found : starts(WARNED).map(whole)
  const isFirst = texts.map((text, number) => texts.findIndex(other => alike(other) === alike(text)) === number)
  return texts.filter((_, number) => isFirst[number]).slice(0, MOST)
}

/** @param {string} text What two texts of one message have in common, whatever their numbers. */
const begin = text => text.replace(/\d+/g, "0").replace(/\s+/g, " ").trim().slice(0, 40)

/**
 * @param {string[]} messages of a section
 * @param {string} text The number of the one that is pasted; -1 where none is.
 */
export const sameMessage = (messages, text) => messages.findIndex(message => {
  const at = text.indexOf(message.trim().slice(0, 10))
  return begin(text.slice(at)) === begin(message)
})
