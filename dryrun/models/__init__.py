"""Which model: the only room that reads a config.json, or knows models by name, by size and by family."""
