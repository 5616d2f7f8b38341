"""What a step is, as data: its workload, its kernels, its storages, and the profiles that have them without a trace."""
