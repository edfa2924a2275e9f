"""The device of a run, and that torch is loaded only where it is needed."""

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.running.device import device_and_free_memory, select_target


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu():
    assert select_target("auto", "float64").device.type == "cpu"
    with pytest.raises(UserError, match="there is no CUDA device here; use device=cpu"):
        select_target("cuda", "float64")
    assert device_and_free_memory(compose(["dataset=banana", "device=auto"])) == ("cpu", None)


def test_cpu():
    assert device_and_free_memory(compose(["dataset=banana", "device=cpu"])) == ("cpu", None)


def test_a_numbered_gpu_is_refused():
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=0"):
        select_target("cuda:0", "float64")
