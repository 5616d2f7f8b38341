"""Memory, FLOPs and traffic of a training step before you run it: of one device, of one rank of many, and a plan."""
