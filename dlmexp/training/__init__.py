"""Trains a batch of models: Adam, minibatches, convergence, CUDA graphs. Knows nothing of experiments and records.

Read `program` (what a batch computes) and `variants` (what of it is learned) first, then `state`, `step` and `train`,
the loop. `rows`: minibatches; `stepper`: threads and captured graphs; `fused_update`: the update in Triton; `metrics`:
how good predictions are, also after `recalibration`; `gradients`: how good estimators are.
"""
