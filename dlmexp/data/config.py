"""The settings of one dataset (`conf/dataset/*.yaml`) and of a user's own table (`csv`)."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from dlmexp.common.limits import FolderName, Whole, one_of


@dataclass
class DatasetConfig:
    """One dataset: where it comes from, how it is split, and the model the paper puts on it.

    Attributes:
        name: The name in records, figures and settings.
        loader: The function that reads its files, by its name in `LOADERS`.
        task: What the targets are.
        likelihood: The likelihood of the model.
        kernel: The kernel of the model.
        ard: Whether the kernel has a lengthscale per feature.
        mean: The prior mean of the model.
        M: The number of inducing inputs; null: by the number of rows; auto: by how much a larger
            one could gain.
        sizes: Numbers of training rows, or shares of the training pool as '5%'; empty: all of it.
        split: The shares of training, validation and test rows: regression, counts, airline, tenth
            or published (docs/SPEC.md, section 5).
        test_cap: The largest number of test rows.
        validation: Which validation rows select beta: all; tenth: only n / 10 of them; train: none,
            they are training rows too; pool: none, they are in the training pool (n counts them).
        stands_for: The paper's dataset that this one is a part of or stands in for.
        rows: The number of rows, which is checked.
        features: The number of features, which is checked.
        options: Settings of the loader, and `checks`.
        files: Its raw files.
        note: A remark for `dlmexp data list`.
    """

    name: FolderName = "???"
    loader: str = "???"
    task: Annotated[str, one_of("regression", "binary", "count")] = "???"
    likelihood: str = "???"
    kernel: str = "rbf"
    ard: bool = False
    mean: Annotated[str, one_of("zero", "constant")] = "zero"
    M: Any = None  # InducingCount | None: OmegaConf 2.3 fails on such a type inside a dictionary
    sizes: list[Any] = field(default_factory=list)
    split: str = "???"
    test_cap: Whole | None = None
    validation: Annotated[str, one_of("all", "tenth", "train", "pool")] = "all"
    stands_for: str | None = None
    rows: int | None = None
    features: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)
    note: str | None = None

    @property
    def kind(self) -> str:
        """The key of its settings in `RunConfig.training`: the task, or `large` (airline split)."""
        return "large" if self.split.startswith("airline") else self.task


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`. Lists name columns.

    Attributes:
        path: The file.
        target: The column of targets.
        task: What the targets are.
        name: The name of the dataset, in records and figures.
        columns: The features; empty: all columns but the target and those of `drop`.
        drop: Columns that are not used.
        categories: Columns to take as categories though they have numbers, or many different texts.
        date_format: How dates are written if not as 2020-12-31, such as "%d/%m/%Y".
        sep: What separates the columns of a text file: a character, or tab, semicolon, ...
        encoding: That of a text file which is neither in UTF-8 nor in UTF-16, such as latin-1.
        decimal: What stands before decimals, point or comma; null: what the numbers themselves say.
        na: Texts that mark missing values, besides NA and the like.
        missing: What happens to missing values: they are refused; their rows are dropped; they are
            replaced by the mean of the training rows, or by a level of their own.
        log: Whether to model the logarithm of a positive target; predictions are in its own units.
        test: A file of test rows.
        splits: A table of 0 and 1 with a column for each split: 1 for its test rows.
        split: How rows are divided. time: the latest rows are the test rows; group: no group is in
            two parts.
        by: The column with times or groups.
        folds: Divide the rows into so many folds, each of which is the test rows of one
            repetition; groups stay together.
        positive: Of a binary target, the label whose probability is modelled, class 1; null: the
            later one in the order of numbers or of letters.
        replace: Forget the results on a table that had the same name and other contents.
    """

    path: str | None = None
    target: str | None = None
    task: str | None = None
    name: FolderName = "csv"
    columns: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    date_format: str | None = None
    sep: str | None = None
    encoding: str | None = None
    decimal: Annotated[str, one_of("point", "comma")] | None = None
    na: list[str] = field(default_factory=list)
    missing: Annotated[str, one_of("refuse", "drop", "mean", "level")] = "refuse"
    log: bool = False
    test: str | None = None
    splits: str | None = None
    split: Annotated[str, one_of("random", "time", "group")] = "random"
    by: str | None = None
    folds: Annotated[int, Meta(ge=2, le=100)] | None = None
    positive: str | None = None
    replace: bool = False
