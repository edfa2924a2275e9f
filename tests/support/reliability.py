"""Runs the fault suite and the fuzz suite, and writes what was injected how often, with what result, to a file.

python -m tests.support.reliability MINUTES [FILE]      (scripts/reliability)
"""

# ruff: noqa: E501

import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from dlmexp import __version__
from dlmexp.records.record import commit
from tests.support import fuzz
from tests.support.fault_suite import KINDS, Suite, fault_server, quick_folder

TEXT = """# Reliability

What was made to go wrong, how often, and what came of it. This page is written by

    scripts/reliability {minutes:g}

which runs the two suites below: here on {machine}, dlmexp {version}, commit {commit}, {date}. The same suites, with fixed
seeds, are part of the tests (`tests/running/test_fault_suite.py`, `tests/test_fuzz.py`).

## Faults of the disk and of processes

A sweep of two cells (an ELBO fit, and a DLM fit that starts from it; a checkpoint after every iteration) does {operations}
operations on the files of its results folder. Each of them went wrong once in each of {kinds} ways: the process was killed
there (`kill -9`; a write after half of its bytes), the disk was full (ENOSPC), or it failed (EIO). Passed means: no
traceback; `status` and all readers of records read what was left; the same command then finished with exit code 0; its
records were those of an undisturbed run, bit for bit; and the folder held the same files, no more and no less.

{faults}

{total} faults, {failed} not passed; {seconds:.0f} s.

Also injected, one test each (`tests/running/test_fault_suite.py`):

| what | test |
|---|---|
| a wall clock that jumps by a day, forwards and backwards, at every look | `test_a_clock_that_jumps` |
| the leases of a host that is gone, an hour old or dated a day ahead | `test_what_a_host_held_that_is_gone_is_no_obstacle` |
| two hosts with one name in one folder, with clocks hours apart | `test_two_processes_train_no_batch_twice_and_lose_none` |
| unfinished files and arrays of a host that died | `test_what_a_dead_host_left_is_removed_when_it_is_old` |
| memory that runs out in a batch on a CPU | `test_memory_that_runs_out_on_a_cpu_halves_the_batch` |

## Spoiled files and settings

Sound files of every kind that dlmexp reads, spoiled in a way that leaves most of their structure as it was: a value of
another type, kind or size in a sealed record; a header that claims another shape; a member that is a link; flipped, cut
and repeated bytes; overrides of `dlmexp run` made from its schema. Passed means: exit code 0, 1, 2, 3 or 130; no
exception; less than {memory:.0f} GiB of memory more than at the start; no file outside the results folder changed; sound records
as they were. `scripts/fuzz MINUTES` runs more, with other seeds.

{cases}

{case_total} cases from seed {seed}, {case_failed} not passed.

## On which machines

| machine | what was run | outcome |
|---|---|---|
| aarch64 (Neoverse-N1, 2 cores), Python 3.11, torch 2.13 for CPUs | tests of `gp`, `estimators`, `objectives`, `training`, `models`, `mlls`, `claims` and of the published results | passed |
| aarch64, the lowest versions (`scripts/test-lowest`, torch 2.5.0, numpy 1.26) | the `--fast` selection | 24 failed; mended, and these passed |
| x86-64 (Xeon), Python 3.11, torch 2.13 for CPUs | all tests, before they were merged | 3 failed; mended, not run there since |
| Triton's interpreter, triton 3.7.1 (numpy 2.4 and 1.26) and 3.9.0, aarch64 | `tests/gp/test_fused.py` | passed |

Sums and special functions differ by some 1e-15 between processors and libraries. So no relative tolerance of a test is below
1e-13, and values that may be near 0 have an absolute one as well. What memory or time decides on a machine is injected.

## What was seen once

Each of these ended in a traceback, in a long silence or in all of the memory, and ends in one sentence now
(in `tests/reading` and `tests/records`, unless a file is named):

| what | test |
|---|---|
| records with a forged seal | `test_a_forged_seal_never_ends_in_a_traceback`, `test_json_that_is_none` |
| a truncated MATLAB file, one that claims more than it has | `test_matlab_files_*`, `test_a_matlab_file_that_claims_too_much_memory` |
| npz files with byte strings, a header that claims 7 TiB, a broken header | `test_arrays_that_are_not_sound_are_refused` |
| archives that are cut off, unfold without end, or hold links and paths out of them | `test_members_of_archives` |
| a CSV file of more columns than anyone needs, in another encoding, without a header | `test_files_that_are_no_tables_are_refused` (`tests/data`) |
| addresses that are none, servers that refuse, send something else or without end | `tests/data/test_files.py` |
| a pipe in a results folder | `test_a_pipe_in_a_results_folder_is_not_waited_for` |
| a manifest that names a folder elsewhere, for `collect` to write or `clean` to delete in | `test_a_manifest_names_nothing_outside_the_folder_that_it_lies_in` |
| Parquet and gzipped tables of which a few bytes stand for gigabytes | `test_a_table_that_unfolds_to_too_much` |
| settings of one's own that are not YAML, or anchors that stand for more than memory holds | `test_a_settings_file_that_is_none` (`tests/test_catalogue.py`) |
"""


def faults() -> tuple[str, int, list[str], int]:
    """The table of faults, how many there were, what was wrong, and the operations of the sweep."""
    wrong: list[str] = []
    with fault_server() as server, quick_folder() as folder:
        suite = Suite(server, folder)
        counts = {}
        for what in KINDS:
            counts[what], problems = suite.everywhere(what)
            wrong += problems
    rows = [f"| operation | {' | '.join(KINDS)} |", f"|---|{'---:|' * len(KINDS)}"]
    rows += [f"| {name} | " + " | ".join(str(counts[what][name]) for what in KINDS) + " |" for name in counts["kill"]]
    total = sum(sum(each.values()) for each in counts.values())
    return "\n".join(rows), total, wrong, len(suite.operations)


def spoiled(minutes: float, seed: int) -> tuple[str, Counter[str], list[str]]:
    fuzz.warm_up()
    counts, wrong = fuzz.until(minutes, list(fuzz.TARGETS), seed)
    failed = Counter(problem.split(" ")[0] for problem in wrong)
    rows = ["| target | cases | not passed |", "|---|---:|---:|"]
    rows += [f"| {name} | {count} | {failed[name]} |" for name, count in counts.items()]
    return "\n".join(rows), counts, wrong


def main() -> int:
    minutes, seed, began = float(sys.argv[1]), int(os.environ.get("SEED", "100000")), time.monotonic()
    table, total, wrong, operations = faults()
    seconds = time.monotonic() - began
    cases, counts, case_wrong = spoiled(minutes, seed)
    page = TEXT.format(
        minutes=minutes, machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        version=__version__, commit=commit(), date=time.strftime("%Y-%m-%d"), operations=operations, kinds="three",
        faults=table, total=total, failed=len(wrong), seconds=seconds, memory=fuzz.MEMORY / 2**30, cases=cases,
        case_total=sum(counts.values()), case_failed=len(case_wrong), seed=seed,
    )  # fmt: skip
    Path(sys.argv[2] if len(sys.argv) > 2 else "docs/RELIABILITY.md").write_text(page)
    print("\n".join([*wrong, *case_wrong]))
    print(f"{total} faults, {len(wrong)} not passed; {sum(counts.values())} cases, {len(case_wrong)} not passed")
    return 1 if wrong or case_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
