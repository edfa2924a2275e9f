"""Blocks on a cluster, held against SLURM's words, the processes at work and the records: who to believe in what."""

from collections.abc import Iterable
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from dlmexp.cluster.jobs import Block, remembered
from dlmexp.cluster.scheduler import Silent, State, limits, states
from dlmexp.running.presence import ActiveProcess


@dataclass(frozen=True)
class Standing:
    """One block, and what is known of it."""

    block: Block
    state: State | None  # None: it can't be known here; `unknown` says why
    unknown: str
    node: str
    left: int  # of its cells that have no record
    open: frozenset[str]  # its cells without a record, unless another block (in the queue, or later) has them too

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


def queue(root: Path, settled: set[str], workers: Iterable[ActiveProcess]) -> list[Standing]:
    """Blocks that are in the queue, at work, or ended with cells that have no record (are not `settled`)."""
    at_work = {worker.job: worker.host for worker in workers if worker.job}
    # Nobody asks about a job whose cells all have records, unless a process of it is still at work.
    asked = [block for block in remembered(root) if block.keys - settled or block.job in at_work]
    known, unknown = _ask(asked)
    known |= {block.job: State("RUNNING", at_work[block.job]) for block in asked if block.job in at_work}
    by_claim = sorted(
        asked, key=lambda block: block.job in known and known[block.job].active
    )  # stable: the latest last
    owner = {key: block.job for block in by_claim for key in block.keys - settled}
    found = []
    for block in asked:
        state = known.get(block.job)
        node = (state.node if state else "") or (block.outcome.host if block.outcome else "")
        mine = frozenset(key for key in block.keys if owner.get(key) == block.job)
        found.append(Standing(block, state, unknown.get(block.job, ""), node, len(block.keys - settled), mine))
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
