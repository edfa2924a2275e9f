"""A function mapped over items by several processes."""

import os

import pytest

from dlmexp.common.errors import UserError
from dlmexp.common.processes import map_in_processes


@pytest.mark.parametrize("cores", [1, 2])
def test_values_come_in_the_order_of_items_and_errors_are_raised(monkeypatch, cores):
    monkeypatch.setattr("dlmexp.common.processes.available_cores", lambda: cores)
    here = os.getpid()

    def make(number: int) -> tuple[int, bool]:
        if number == 4:
            raise UserError("four")
        return number**2, os.getpid() == here

    made = map_in_processes(make, range(5))
    assert [next(made) for _ in range(4)] == [(number**2, cores == 1) for number in range(4)]
    with pytest.raises(UserError, match="four"):
        next(made)
