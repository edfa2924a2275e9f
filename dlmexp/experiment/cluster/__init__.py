"""Multiruns and SLURM. Knows nothing of Gaussian processes: a job calls `experiment.running`.

Read in this order: `multirun` (`dlmexp run -m`: blocks as jobs), `submission` (from blocks to jobs
in the queue), `node` (what a job does), `slurm` (questions to SLURM), `jobs` (the jobs of a results
folder), `status` (a results folder with its jobs).
"""
