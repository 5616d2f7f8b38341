"""Carries a figure from the run that made it to the sentence that a reader sees.

The modules stand in one line, and each imports only those before it:
problems, machine, measure, trace, records, claims, notebooks, charts, pages, lint, __main__.
Outside of the line stands `site`, the one module that is tied to MkDocs.
`trace` and `measure` need torch; everything that builds the site does not.
"""
