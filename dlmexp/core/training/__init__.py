"""Trains a batch of models: Adam, minibatches, convergence, CUDA graphs. Knows nothing of
experiments and records.

Read `program` (what a batch computes) and `variants` (what of it is learned) first, then `state`,
`step` (with threads and captured graphs) and `train`, the loop. `fused_update`: the update in
Triton; `metrics`: how good predictions are, also recalibrated."""
