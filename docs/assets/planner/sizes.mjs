// A model by its sizes, in the words that dryrun takes: llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000.

/** @typedef {{kind: string, sizes: Map<string, string>, tied: boolean}} Sizes */

/** @param {string} words @returns {Sizes} */
export const parsedSizes = words => {
  const [kind, rest = ""] = words.split(":"), parts = rest.split(",").filter(Boolean).map(part => part.split("="))
  return {
    kind,
    sizes: new Map(parts.filter(pair => pair.length === 2).map(([name, value]) => [name, value])),
    tied: parts.some(([name]) => name === "tied")
  }
}

/** @param {Sizes} given */
export const inWords = ({ kind, sizes, tied }) => {
  const filled = [...sizes].filter(([, value]) => value).map(pair => pair.join("="))
  return `${kind}:${filled.join(",")}${tied ? ",tied" : ""}`
}
