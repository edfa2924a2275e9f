"""Blocks on a cluster, held against SLURM's words, the processes at work and the records: who to believe in what."""

from collections.abc import Iterable
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from dlmexp.sweep.blocks import Block, remembered
from dlmexp.sweep.presence import Worker
from dlmexp.sweep.scheduler import Silent, State, limits, states


@dataclass(frozen=True)
class Standing:
    """One block, and what is known of it."""

    block: Block
    state: State | None  # None: it can't be known here; `unknown` says why
    unknown: str
    node: str
    open: frozenset[str]  # its cells without a record that no later block was submitted for

    @property
    def active(self) -> bool:
        return self.state is not None and self.state.active

    @property
    def lost(self) -> bool:
        """It has ended and left cells without a record, whatever SLURM calls that."""
        return self.state is not None and not self.state.active and bool(self.open)

    @property
    def sentence(self) -> str:
        """Its state in words."""
        if self.state is None:
            return f"unknown: {self.unknown}"
        if self.state.active:
            waits = self.state.name == "PENDING" and self.state.reason
            return self.state.name.lower() + (f" ({self.state.reason})" if waits else "")
        why = self.block.outcome.why if self.block.outcome else ""
        return f"ended ({self.state.name})" + (f": {why}" if why else "")


def queue(root: Path, settled: set[str], workers: Iterable[Worker]) -> list[Standing]:
    """Blocks that are in the queue, at work, or ended with cells that have no record (are not `settled`)."""
    blocks = remembered(root)
    latest = {key: block.job for block in blocks for key in block.keys if key not in settled}
    mine = {block.job: frozenset(k for k in block.keys if latest.get(k) == block.job) for block in blocks}
    at_work = {worker.job: worker.host for worker in workers if worker.job}
    # Nobody asks about a job whose cells all have records, unless a process of it is still at work.
    asked = [block for block in blocks if mine[block.job] or block.job in at_work]
    known, unknown = _ask(asked)
    found = []
    for block in asked:
        state, node = known.get(block.job), ""
        if block.job in at_work:
            state, node = State("RUNNING", at_work[block.job]), at_work[block.job]
        elif state is not None:
            node = state.node or (block.outcome.host if block.outcome else "")
        found.append(Standing(block, state, unknown.get(block.job, ""), node, mine[block.job]))
    return [standing for standing in found if standing.open or standing.active]


def _ask(blocks: list[Block]) -> tuple[dict[str, State], dict[str, str]]:
    """States by job; and for the others, why nothing can be said of them here."""
    if not blocks:
        return {}, {}
    try:
        cluster, _ = limits()
        here = [block for block in blocks if block.cluster == cluster]
        known = states(block.job for block in here)
    except Silent as silence:
        return {}, {block.job: str(silence) for block in blocks}
    unknown = {block.job: f"a job of cluster {block.cluster}" for block in blocks if block.cluster != cluster}
    for block in here:
        # Clusters may hide the jobs of others: what can't be seen has not ended for that.
        if known[block.job].name == "ENDED" and block.user != getuser() and not block.outcome:
            unknown[block.job] = f"a job of user {block.user} that can't be seen from here"
            del known[block.job]
    return known, unknown
