"""Adam on a dictionary of tensors whose leading dimension is the cells: elementwise, so cells never meet."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

Tensors = dict[str, Tensor]


def adam(
    values: Tensors,
    grads: Tensors,
    first: Tensors,
    second: Tensors,
    steps: Int[Tensor, "B"],
    move: Bool[Tensor, "B"],
    lr: float | Float[Tensor, ""],
    epsilon: float = EPSILON,
    resolution: float | None = None,
) -> None:
    """One update in place of the cells in `move`; `steps` counts each cell's updates, this one included.

    The others keep their values and moments, so that a stopped cell stays as it was when it stopped.

    Adam divides a gradient by its own size, so rounding errors of a gradient become errors of a step; from there they
    grow tenfold within a few iterations (docs/SPEC.md, section 6). With a `resolution` every step is a whole multiple
    of `lr * resolution`. Gradients that differ by rounding then make the same step, to the last bit, unless they lie
    on two sides of a border between multiples; a larger `epsilon` makes that rare where gradients are small.
    """
    made = steps.to(torch.float64)  # a power of integers would come in float32
    correction1 = 1 - BETA1**made
    scale = (1 - BETA2**made).sqrt_()
    rate = lr / correction1
    everyone = not move.is_cuda and bool(move.all())  # on a CPU a look costs nothing, and saves most of the copies
    for name, value in values.items():
        shape = (-1,) + (1,) * (value.ndim - 1)
        grad = grads[name]
        m, v = (moment[name] if everyone else moment[name].clone() for moment in (first, second))
        m.lerp_(grad, 1 - BETA1)
        v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        size = v.sqrt().div_(scale.to(value.dtype).view(shape)).add_(epsilon)
        if resolution is None:
            step = (rate.to(value.dtype).view(shape) * m).div_(size)
        else:
            direction = (m / correction1.to(value.dtype).view(shape)).div_(size)
            step = torch.round(direction.div_(resolution)).mul_(lr * resolution)
        if everyone:
            value.sub_(step)
        else:
            moving = move.view(shape)
            first[name].copy_(torch.where(moving, m, first[name]))
            second[name].copy_(torch.where(moving, v, second[name]))
            value.copy_(torch.where(moving, value - step, value))
