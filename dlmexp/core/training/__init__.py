"""Train a batch of models side by side: Adam, minibatches, the stopping rule, CUDA graphs.

A cell is one model under training: one split of the data with one beta. A batch is B cells that
train side by side, as tensors with a leading dimension B. This package knows nothing of experiments
and records. Read its modules in this order:

1. `model` and `data`: what is trained, on which rows. `parameters` and `initial`: the parameters,
   and where they start.
2. `program`: the objective of a batch and its posterior. Subclasses differ in what is learned:
   everything (`joint`), q alone (`fixed`), everything but q (`collapsed`), or everything with a
   mixture of Gaussians as q (`mixture`).
3. `settings`, `stopping`, `state`, `adam` and `step`: one iteration. `fused_update` is
   `step.update` for a GPU, in Triton.
4. `stepper` (with `graphs`), `batch` and `train`: the loop. `sizes`: how many cells are a batch.
5. `metrics` and `recalibration`: how good predictions are. `curves` and `reports` evaluate cells
   during and after training; `finished` is the result of a cell.

The other modules are additions to this path. `quasi_newton` trains by L-BFGS (`lbfgs`, `restarts`)
in place of Adam. `solve` has closed forms, without iterations. `pilot` finds initial values by a
short fit. `gap` bounds what a larger M could gain, and `automatic` chooses M by it. `gradients`
compares the gradients of estimators. `collapsed_check` checks objectives of plugins.
"""
