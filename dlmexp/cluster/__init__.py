"""Multiruns, SLURM, and the states of jobs. Knows nothing of Gaussian processes: a job calls `dlmexp.running`."""
