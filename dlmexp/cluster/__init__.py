"""Multiruns and SLURM. Knows nothing of Gaussian processes: a job calls `dlmexp.running`.

Read in this order: `multirun` (`dlmexp run -m`), `submission` (blocks as jobs: submitted, run on a node, waited for),
`jobs` (their folders and states), `slurm` (what is asked of SLURM), `status` (of a results folder, with its
jobs, and how it is shown).
"""
