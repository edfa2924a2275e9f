"""Verdicts as a table, for Python."""

import pandas as pd

from dlmexp.claims.judge import judge_protocols
from dlmexp.claims.render import as_json
from dlmexp.records.results import load
from dlmexp.records.wanted import Wanted

SHOWN = ("verdict", "basis", "data", "repetitions", "missing", "commands")


def verdicts(folder: str, protocol: str | None = None) -> pd.DataFrame:
    """The paper's 22 claims, judged on the records of a folder (called as `dlmexp.claims`).

    Args:
        folder: A results folder.
        protocol: Judge the records of this protocol alone, such as `"paper"`; otherwise of all that were run.

    Returns:
        A table with one row per claim and protocol. Its columns are `number`, `claim`, `protocol`, `verdict` (holds,
        fails, mixed, undecided, undecidable, not run), `basis` (on whose data), `data`, `repetitions`, `missing`
        (commands that would compute what is not there) and `commands` (those that made the records).

    Raises:
        UserError: There are no records in the folder, or none of this protocol.

    Example:
        ```python
        verdicts = dlmexp.claims("results/paper")
        verdicts[verdicts["verdict"] == "holds"]["claim"]
        ```
    """
    rows = [
        {"number": claim["number"], "claim": claim["claim"], "protocol": name, **{key: under[key] for key in SHOWN}}
        for claim in as_json(judge_protocols(load(folder), Wanted(protocol)))
        for name, under in claim["protocols"].items()
    ]
    return pd.DataFrame(rows)
