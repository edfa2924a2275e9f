"""Write scores of splits in the formats of other leaderboards, and describe a results folder.

- `scores`: a table with a row per method, data set, split and metric.
- `bencheval`: the table that the package of that name ranks, for one metric.
- `benchopt`: the table that `benchopt run` writes, with a column per metric.
- `croissant`: a description of the Parquet files of the folder in JSON-LD (Croissant 1.0).
"""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dlmexp.common.errors import UserError
from dlmexp.experiment.records.packed import BASELINES, BENCHOPT, PACK_PATTERN, SCORES
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.ranking.board import largest_block
from dlmexp.presentation.ranking.splits import (
    COVERAGE_COLUMN,
    KERNEL_COLUMNS,
    SETTING_COLUMNS,
    identity_texts,
    scores_of_splits,
)

# The scores that are written, by their column in the table of `scores_of_splits`.
METRIC_COLUMNS = ("nll", "crps", "rmse", "error", COVERAGE_COLUMN, "seconds")
# The columns of `scores` with their meaning, as the Croissant file has them.
COLUMN_MEANINGS = {
    "method": "name of the method; settings follow in brackets where several have its name",
    "trained_by": "dlmexp, or who trained it on the same splits",
    "kernel": "kernel of the Gaussian process",
    "ard": "whether every feature has a lengthscale of its own",
    "dataset": "name of the data set",
    "task": "regression, binary or count",
    "split": "number of the published split, or of the random one",
    "rows": "training rows",
    "metric": "nll, crps, rmse, error, coverage_95 or seconds",
    "value": "value of the metric on the test rows",
}
# The context that Croissant 1.0 prescribes.
CROISSANT_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
LICENCE_URL = "https://spdx.org/licenses/MIT.html"
PARQUET_TYPE = "application/x-parquet"


def names_of_rows(scores: pd.DataFrame) -> pd.Series:
    """Return the method of each row, with the settings in which rows of the method differ.

    A name with settings is written as `elbo[rbf,M=50]`.
    """
    texts = identity_texts(scores)
    setting_columns = [*KERNEL_COLUMNS, *SETTING_COLUMNS]
    names = texts["method"].copy()
    for method, rows in texts.groupby("method", sort=False):
        differing = [name for name in setting_columns if rows[name].nunique() > 1]
        if differing:
            settings = rows[differing].apply(_comma_separated, axis="columns")
            names[rows.index] = f"{method}[" + settings + "]"
    return names


def _comma_separated(texts: pd.Series) -> str:
    """Return the texts that are not empty, separated by commas."""
    return ",".join(filter(None, texts))


def as_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row per method, data set, split and metric that the method has."""
    wide = pd.DataFrame(
        {
            "method": names_of_rows(scores),
            "trained_by": scores["trained_by"],
            "kernel": scores["kernel"],
            "ard": scores["ard"].eq(True),
            "dataset": scores["dataset"],
            "task": scores["task"],
            "split": scores["seed"].astype("int64"),
            "rows": scores["n"].astype("int64"),
            **{name: scores[name].astype("float64") for name in METRIC_COLUMNS},
        }
    )
    other_columns = [name for name in wide if name not in METRIC_COLUMNS]
    long = wide.melt(
        id_vars=other_columns,
        value_vars=list(METRIC_COLUMNS),
        var_name="metric",
        value_name="value",
    )
    long = long.dropna(subset="value")
    order = ["method", "dataset", "split", "metric"]
    return long.sort_values(order, kind="stable").reset_index(drop=True)


def as_bencheval(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the table that bencheval ranks, for a metric without negative values.

    The table is complete, as bencheval needs: it has the methods and data sets of the largest block
    (`largest_block`), and the splits that all of these methods have. The time to predict is not
    measured; its column has zeros.
    """
    table = pd.DataFrame(
        {
            "method": names_of_rows(scores),
            "task": scores["dataset"],
            "seed": scores["seed"].astype("int64"),
            "metric_error": scores[metric].astype("float64"),
            "time_train_s": scores["seconds"].astype("float64"),
            "time_infer_s": 0.0,
        }
    )
    table = _complete(table.dropna())
    return table.sort_values(["method", "task", "seed"], kind="stable").reset_index(drop=True)


def _complete(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the largest block of methods and tasks, on the splits that all have.

    Args:
        table: A table of bencheval, where a task is a data set.

    Raises:
        UserError: There are no rows.
    """
    if table.empty:
        raise UserError("--as bencheval: no result has this metric; choose another by --metric")
    tasks = {name: frozenset(rows["task"]) for name, rows in table.groupby("method", sort=True)}
    block = largest_block(tasks)
    shared = next(iter(block.values()))
    in_block = table[table["method"].isin(list(block)) & table["task"].isin(list(shared))]
    method_count = in_block.groupby(["task", "seed"])["method"].transform("nunique")
    return in_block[method_count == len(block)]


def as_benchopt(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the table of benchopt, with a row per method, data set and split."""
    columns: dict[str, Any] = {
        "objective_name": "test rows",
        "obj_description": "scores on the test rows of every split",
        "solver_name": names_of_rows(scores),
        "solver_description": "",
        "dataset_name": scores["dataset"],
        "idx_rep": scores["seed"].astype("int64"),
        # Benchopt can run a solver with growing limits of iterations. Ours ran once, without them.
        "sampling_strategy": "Run_once",
        "stop_val": 1,
        "time": scores["seconds"].astype("float64"),
    }
    for name in METRIC_COLUMNS:
        if name != "seconds":
            columns[f"objective_{name}"] = scores[name].astype("float64")
    for name in ("kernel", "protocol", "changes"):
        columns[f"p_solver_{name}"] = scores[name]  # benchopt's prefix of a solver's parameters
    table = pd.DataFrame(columns)
    order = ["solver_name", "dataset_name", "idx_rep"]
    return table.sort_values(order, kind="stable").reset_index(drop=True)


def as_croissant(folder: Path) -> dict[str, Any]:
    """Return the description of a folder's Parquet files, with the fields of its scores.

    Raises:
        UserError: The folder has no table of scores.
    """
    path = folder / SCORES
    if not path.is_file():
        raise UserError(f"--as croissant describes {path}: write it first, by --as scores")
    files = sorted(folder.glob(PACK_PATTERN))
    return {
        "@context": CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"dlmexp-{folder.resolve().name}",
        "description": (
            "Scores of sparse Gaussian processes and of other methods on every split of public "
            "data sets, with the packed records that they come from."
        ),
        "license": LICENCE_URL,
        "distribution": [_file_object(file) for file in files],
        "recordSet": [_record_set(path)],
    }


def _file_object(path: Path) -> dict[str, Any]:
    """Return the description of a file."""
    content = path.read_bytes()
    descriptions = {
        SCORES: "scores of every split",
        BASELINES: "scores of methods that others trained",
    }
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "description": descriptions.get(path.name, "packed records (dlmexp collect --pack)"),
        "contentUrl": path.name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": PARQUET_TYPE,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _record_set(path: Path) -> dict[str, Any]:
    """Return the description of the columns of a table of scores."""
    types = {
        "ard": "sc:Boolean",
        "split": "sc:Integer",
        "rows": "sc:Integer",
        "value": "sc:Float",
    }
    fields = []
    for name, meaning in COLUMN_MEANINGS.items():
        field = {
            "@type": "cr:Field",
            "@id": f"scores/{name}",
            "name": f"scores/{name}",
            "description": meaning,
            "dataType": types.get(name, "sc:Text"),
            "source": {"fileObject": {"@id": path.name}, "extract": {"column": name}},
        }
        fields.append(field)
    return {"@type": "cr:RecordSet", "@id": "scores", "name": "scores", "field": fields}


@dataclass(frozen=True)
class Format:
    """A format of `dlmexp collect --as`.

    Attributes:
        file: The name of the file.
        content: The function that returns its content, from a results folder and the name of a
            metric, which only bencheval uses.
    """

    file: str
    content: Callable[[ResultsFolder, str], bytes]


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n", float_format="%.8g").encode()


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()


def _scores_content(results: ResultsFolder, metric: str) -> bytes:
    return _parquet(as_scores(scores_of_splits(results)))


def _bencheval_content(results: ResultsFolder, metric: str) -> bytes:
    return _csv(as_bencheval(scores_of_splits(results), metric))


def _benchopt_content(results: ResultsFolder, metric: str) -> bytes:
    return _parquet(as_benchopt(scores_of_splits(results)))


def _croissant_content(results: ResultsFolder, metric: str) -> bytes:
    return _json(as_croissant(results.root))


FORMATS = {
    "scores": Format(SCORES, _scores_content),
    "bencheval": Format("bencheval.csv", _bencheval_content),
    "benchopt": Format(BENCHOPT, _benchopt_content),
    "croissant": Format("croissant.json", _croissant_content),
}
"""All formats by the names that users type."""
