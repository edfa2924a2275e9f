"""Train a batch of models side by side: Adam, minibatches, the stopping rule, CUDA graphs.

A cell is one model under training: one split of the data with one beta. A batch is B cells that
train side by side, as tensors with a leading dimension B. The modules know nothing of experiments
and records. Read them in this order:

1. `model` and `data`: what is trained, on which rows.
2. `program`: the objective of a batch and its posterior. Subclasses differ in what is learned:
   everything (`joint`), q alone (`fixed`), everything but q (`collapsed`), a mixture as q
   (`mixture`).
3. `settings` and `stopping`, `state`, `adam` and `step`: one iteration.
4. `stepper` (with `graphs`), `batch` and `train`: the loop.
5. `metrics` and `recalibration`: how good predictions are. `finished`: the result of a cell.

`quasi_newton` trains by L-BFGS (`lbfgs`) in place of Adam. Nothing is iterated in `solve` (a closed
form) and `gradients` (statistics of estimators). `fused_update` is `step.update` in Triton.
"""
