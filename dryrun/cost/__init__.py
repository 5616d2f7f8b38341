"""What a step costs: seconds and GiB of its trace on GPUs."""
