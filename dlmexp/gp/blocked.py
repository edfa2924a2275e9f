"""The sparse posterior's marginals on a CPU, block by block: `posterior.marginals` for kernels that are an exponential
of a product, with the kernel matrix computed, used and differentiated while it is in the caches."""

from typing import Any

import torch
from torch import Tensor

from dlmexp.gp.autograd import once_differentiable
from dlmexp.gp.blocks import Workspace, add_symmetric_product_, blocks, lower_product, symmetrise_
from dlmexp.gp.cholesky import pullback


class BlockedMarginals(torch.autograd.Function):
    """(left, right, Kuu, Luu^-1, m, L) -> A^T m and `A_i^T S A_i` for `Kuf = exp(left right^T)`: the mathematics of
    `posterior._Marginals` and `kernels._Exponential`. `right` is a constant."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, Kuu: Tensor, Luu_inv: Tensor, m: Tensor, L: Tensor, memory: Workspace
    ) -> tuple[Tensor, Tensor]:
        S = L @ L.mT
        S.diagonal(dim1=-2, dim2=-1).sub_(1)
        T = Luu_inv.mT @ S
        (B, M, _), N = left.shape, right.shape[-2]
        fit, gain = left.new_empty(B, 1, N), left.new_empty(B, 1, N)
        ones = left.new_ones(1, 1, M)
        kept = []
        keeps = any(ctx.needs_input_grad)
        for i, (cells, rows) in enumerate(blocks(B, M, N)):
            shape = cells.stop - cells.start, M, rows.stop - rows.start
            K, A, V = (memory.array(f"{name} {i if keeps else 0}", left, *shape) for name in ("K", "A", "V"))
            torch.bmm(left[cells], right[cells, rows].mT, out=K).exp_()
            lower_product(Luu_inv[cells], K, out=A)
            torch.bmm(T[cells], A, out=V)
            torch.bmm(m[cells].unsqueeze(-2), A, out=fit[cells, :, rows])
            KV = torch.mul(K, V, out=memory.array("product", left, *shape))
            torch.bmm(ones.expand(shape[0], 1, M), KV, out=gain[cells, :, rows])
            kept.append((cells, rows, K, A, V))
        if keeps:
            ctx.save_for_backward(left, right, Luu_inv, m, L)
            ctx.kept, ctx.memory = kept, memory
        return fit.squeeze(-2), gain.squeeze(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None, None, Tensor, Tensor, None]:
        left, right, Luu_inv, m, L = ctx.saved_tensors
        g, h = grads
        w = (Luu_inv.mT @ m.unsqueeze(-1)).mul_(0.5)
        P, r, d_left = torch.zeros_like(L), m.new_zeros(*m.shape, 1), torch.zeros_like(left)
        for cells, rows, K, A, V in ctx.kept:
            row_h = h[cells, None, rows]
            product = ctx.memory.array("product", left, *K.shape)
            add_symmetric_product_(P[cells], torch.mul(A, row_h, out=product), A)
            r[cells].baddbmm_(A, g[cells, rows, None])
            if ctx.needs_input_grad[0]:
                d_K = torch.mul(V, row_h, out=product).addcmul_(w[cells], g[cells, None, rows]).mul_(K)
                d_left[cells].baddbmm_(d_K, right[cells, rows], alpha=2)
        symmetrise_(P)
        PL = P @ L
        d_Kuu = None
        if ctx.needs_input_grad[2]:
            d_Kuu = -pullback(Luu_inv, 2 * (L @ PL.mT - P) + m.unsqueeze(-1) * r.mT)
        return d_left, None, d_Kuu, None, r.squeeze(-1), 2 * PL, None
