"""The schema of the settings that describe one dataset (`conf/dataset/*.yaml`) and a user's own table (`csv`)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from dlmexp.common.limits import FolderName, Whole, one_of


@dataclass
class DatasetConfig:
    """One dataset: where it comes from, how it is split, and the model the paper puts on it."""

    name: FolderName = "???"
    loader: str = "???"
    task: Annotated[str, one_of("regression", "binary", "count")] = "???"
    likelihood: str = "???"
    kernel: str = "rbf"
    ard: bool = False
    mean: Annotated[str, one_of("zero", "constant")] = "zero"
    M: Whole | None = None  # inducing points; null chooses by the number of rows
    sizes: list[Any] = field(
        default_factory=list
    )  # rows, or shares of the training pool as '5%'; empty: all of it
    split: str = "???"  # regression | counts | airline
    test_cap: Whole | None = None
    # All rows for validation select beta; or only n / 10 of them; or they are training rows too, and select nothing.
    validation: Annotated[str, one_of("all", "tenth", "train")] = "all"
    stands_for: str | None = None  # the paper's dataset this one is a part of or stands in for
    rows: int | None = None
    features: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)
    note: str | None = None

    @property
    def kind(self) -> str:
        """The key of its settings in `RunConfig.training`: the task, or `large` for data with the airline split."""
        return "large" if self.split.startswith("airline") else self.task


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`. Lists name columns."""

    path: str | None = None
    target: str | None = None
    task: str | None = None
    name: FolderName = "csv"  # of the dataset, in records and figures
    columns: list[str] = field(
        default_factory=list
    )  # the features; empty: all columns but the target ...
    drop: list[str] = field(default_factory=list)  # ... and these
    categories: list[str] = field(
        default_factory=list
    )  # numbers, or many different texts, that are categories
    date_format: str | None = None  # how dates are written if not as 2020-12-31, such as "%d/%m/%Y"
    sep: str | None = (
        None  # between the columns of a text file: a character, or tab, semicolon, ...
    )
    na: list[str] = field(
        default_factory=list
    )  # words that stand for a missing value, besides NA and the like
    # Rows with missing values are dropped; or the mean of those for training or a level of its own stands for a value.
    missing: Annotated[str, one_of("refuse", "drop", "mean", "level")] = "refuse"
    log: bool = False  # model the logarithm of a positive target; predictions are in its own units
    test: str | None = None  # a file of test rows
    split: Annotated[str, one_of("random", "time", "group")] = (
        "random"  # time: the latest rows test; group: none in two parts
    )
    by: str | None = None  # the column with times or groups
