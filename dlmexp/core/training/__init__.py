"""Train a batch of models side by side: Adam, minibatches, the stopping rule, CUDA graphs.

Knows nothing of experiments and records. Read in this order:

1. `model` and `data`: what is trained, on which rows.
2. `program`: what a batch computes. Its kinds differ in what is learned: everything (`joint`), q
   alone (`fixed`), everything but q (`collapsed`).
3. `settings` and `stopping`, `state`, `adam` and `step`: one iteration.
4. `stepper` (with `graphs`), `batch` and `train`: the loop.
5. `metrics` and `recalibration`: how good predictions are. `finished`: what a cell leaves.

Nothing is iterated in `solve` (a closed form) and `gradients` (statistics of estimators).
`fused_update` is `step.update` in Triton.
"""
