"""What somebody asks for: whether a job fits a cluster, how fast it is, which strategy is best, what a machine reaches."""
