"""What is known: accelerators, links, strategies, optimizers and formats, from the tables in `dryrun/data`."""
