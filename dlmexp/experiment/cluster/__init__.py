"""Multiruns and SLURM. Nothing here knows Gaussian processes: a job calls `experiment.running`.

Read in this order: `multirun` (`dlmexp run -m`: each block of cells is a job), `submission`
(submits blocks to the queue), `node` (the program of a job on its node), `slurm` (queries to
SLURM), `jobs` (the jobs of a results folder), `status` (a results folder with its jobs),
`plan_table` (the plan of a multirun), `hydra_jobs` (jobs that Hydra itself starts).
"""
