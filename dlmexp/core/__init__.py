"""The library: many sparse GPs trained as one batched tensor program.

It works on tensors, models and settings, and knows nothing of records, folders, named datasets and
Hydra. Read `gp`, `likelihoods`, `estimators`, `objectives`, `training` in this order.
"""
