"""Verdicts as a table, for Python."""

import pandas as pd

from dlmexp.claims.judge import judge_protocols
from dlmexp.claims.render import as_json
from dlmexp.records.results import load
from dlmexp.records.wanted import Wanted

SHOWN = ("verdict", "basis", "data", "repetitions", "missing", "commands")


def verdicts(folder: str, protocol: str | None = None) -> pd.DataFrame:
    """One row per claim and protocol."""
    rows = [
        {"number": claim["number"], "claim": claim["claim"], "protocol": name, **{key: under[key] for key in SHOWN}}
        for claim in as_json(judge_protocols(load(folder), Wanted(protocol)))
        for name, under in claim["protocols"].items()
    ]
    return pd.DataFrame(rows)
