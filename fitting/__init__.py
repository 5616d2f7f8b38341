"""For whoever refits the constants of `dryrun`: published measurements, fit, judge. Readers of the library need none of it."""
