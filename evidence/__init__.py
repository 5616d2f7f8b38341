"""Carries a figure from the run that made it to its record; `evidence.site` carries the record to the page.

Each module imports only those before it: problems, machine, schema, records, cited, measured_code, freshness, measure, launch, wire,
plots, session, claims, compare, contributed, notebooks, runs, finish, pairs, contributions, notebook_lint,
offline_hub, recipes, site, ready, __main__. `measure` needs torch; what builds the site does not.
"""
