"""Carries a figure from the run that made it to the sentence that a reader sees.

The modules stand in one line, and each imports only those before it:
problems, machine, measure, trace, ranks, plan, launch, records, claims, changes, notebooks, notes, charts, pages, lint,
redirects, addresses, twins, forward, notebook_pages, browser, audit, __main__.
Outside of the line stands `site`, the one module that is tied to MkDocs.
`trace`, `ranks` and `measure` need torch; everything that builds the site does not.
"""
