"""How a user wants the rows of an own table divided: by time, by whole groups, or with test rows of their own."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from dlmexp.errors import UserError

Kind = Literal["random", "time", "group"]
KINDS = ("random", "time", "group")


@dataclass(frozen=True)
class Arrangement:
    """`by`: a time, or the number of a group, for every row. The last `test` rows are the user's own test rows."""

    kind: Kind = "random"
    by: Float[np.ndarray, " N"] | None = None
    column: str = ""  # the name of `by`, for messages
    test: int = 0

    @property
    def label(self) -> str:
        """What a cell's key says of it, besides the data."""
        return ("" if self.kind == "random" else f"-{self.kind}") + (f"-test{self.test}" if self.test else "")

    def parts(
        self, order: Int[np.ndarray, " R"], pool: int, validation: int, shuffled: Int[np.ndarray, " P"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Training pool, validation and the remaining rows, out of rows in a random `order`; `shuffled` is a
        permutation of `pool` numbers.

        time: the earliest rows are the pool, the latest come last. group: no group is in two parts, and rows of a group
        that would be are not used. In both, training sets are random rows of the pool.
        """
        by = self.by
        assert by is not None
        if self.kind == "time":
            rows = np.sort(order)
            rows = rows[np.argsort(by[rows], kind="stable")]
            first, second = pool, pool + validation
            kept = rows[:first], rows[first:second], rows[second:]
        else:
            _, first_seen, code = np.unique(by[order], return_index=True, return_inverse=True)
            ranks = np.argsort(np.argsort(first_seen))[code]  # groups in the order of their first row: a random one
            rows, ranks = order[np.argsort(ranks, kind="stable")], np.sort(ranks)
            first = pool
            second_start = _next_group(ranks, first)
            second = second_start + validation
            kept = rows[:first], rows[second_start:second], rows[_next_group(ranks, second) if validation else second :]
        if len(kept[0]) < pool or len(kept[1]) < validation or (not self.test and not len(kept[2])):
            raise UserError(
                f"csv.by={self.column}: its {len(np.unique(by))} groups are too few or too large to leave validation "
                "and test rows in groups of their own: use csv.split=random without csv.by, or a finer column"
            )
        return kept[0][shuffled], kept[1], kept[2]


def _next_group(ranks: np.ndarray, cut: int) -> int:
    """The first row at or after `cut` that begins a group."""
    if cut >= len(ranks) or cut == 0:
        return min(cut, len(ranks))
    return int(np.searchsorted(ranks, ranks[cut - 1], side="right"))
