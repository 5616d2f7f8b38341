// Where several versions stand side by side (mike): a choice of them in the header, and a line on top of an older one.
{
  const root = new URL(document.currentScript.dataset.root, location.href)
  const here = root.pathname.split("/").at(-2), page = location.href.slice(root.href.length)
  const place = ({ version, aliases }) => new URL(`../${aliases.includes("latest") ? "latest" : version}/`, root).href
  fetch(new URL("../versions.json", root)).then(answer => answer.json()).then(versions => {
    const current = versions.find(({ version, aliases }) => version === here || aliases.includes(here))
    const newest = versions.find(({ aliases }) => aliases.includes("latest")) ?? versions[0]
    const select = Object.assign(document.createElement("select"), { className: "versions", ariaLabel: "Version" })
    select.append(...versions.map(version => new Option(version.title, place(version), version === current, version === current)))
    select.addEventListener("change", async () => { // the same page there, or the overview where that version has none
      const there = await fetch(select.value + page, { method: "HEAD" }).catch(() => null)
      location = select.value + (there?.ok ? page : "")
    })
    document.querySelector(".site-name").after(select)
    if (current === newest) return
    const banner = document.querySelector(".outdated")
    banner.querySelector("a").href = place(newest)
    banner.hidden = false
  })
}
