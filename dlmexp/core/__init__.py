"""The library: many sparse GPs trained as one batched tensor program.

Tensors, models and settings only; nothing here knows cells, records, folders, datasets or Hydra.
Read `gp`, `likelihoods`, `estimators`, `objectives`, `training` in this order.
"""
