"""Multiruns and SLURM. Knows nothing of Gaussian processes: a job calls
`dlmexp.experiment.running`.

Read in this order: `multirun` (`dlmexp run -m`: blocks as jobs), `status` (of a results folder,
with its jobs)."""
