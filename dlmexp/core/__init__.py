"""The library: many sparse GPs trained as one batched tensor program.

It knows tensors, models and settings, but no records, folders, datasets by name or Hydra. Read
`gp`, `likelihoods`, `estimators`, `objectives`, `training` in this order.
"""
