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
        M: The number of inducing inputs. null: computed from the number of rows; auto: chosen so
            that a larger number could gain little.
        sizes: Numbers of training rows, or shares of the training pool as '5%'; empty: all of it.
        split: The kind of split, which decides the shares of training, validation and test rows:
            regression, counts, airline, tenth or published (docs/SPEC.md, section 5).
        test_cap: The largest number of test rows.
        validation: What validation rows are for. all: all of them select beta. tenth: only n / 10
            of them select beta, where n is the size. train: they are training rows in addition to
            the n. pool: they belong to the training pool, so that the n rows may include them.
        stands_for: The paper's dataset that this one is a part of or stands in for.
        rows: The number of rows, which is checked.
        features: The number of features, which is checked.
        options: Settings of the loader, and expected statistics as `checks` (see
            `dlmexp.data.dataset`).
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
        """The key of the settings in `RunConfig.training` that apply to this dataset.

        The key is `large` for datasets with the split of airline, and the task for all others.
        """
        return "large" if self.split.startswith("airline") else self.task


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`.

    Attributes:
        path: The file.
        target: The column of targets.
        task: What the targets are.
        name: The name of the dataset, in records and figures.
        columns: The features; empty: all columns but the target and those of `drop`.
        drop: Columns that are not used.
        categories: Columns to take as categories although they hold numbers, or many different
            texts.
        date_format: How dates are written, such as "%d/%m/%Y"; null: as 2020-12-31, or in the only
            common format that fits.
        sep: What separates the columns of a text file: a character, or tab, semicolon, ...
        encoding: The encoding of a text file that is neither in UTF-8 nor in UTF-16, such as
            latin-1.
        decimal: The decimal mark, point or comma; null: the one that the numbers themselves show.
        na: Texts that mark missing values, besides NA and the like.
        missing: How missing values are treated. refuse: they are an error; drop: their rows are
            left out; mean: the mean of the training rows replaces them; level: like mean, but a
            missing category is a level of its own.
        log: Whether to model the logarithm of a positive target; predictions are in the units of
            the target itself.
        test: A file of test rows.
        splits: A table of 0 and 1 with a column for each split: 1 for its test rows.
        split: How rows are divided. time: the latest rows are the test rows; group: no group is in
            two parts.
        by: The column with times or groups.
        test_size: The share of the rows that are test rows.
        validation_size: The share of the rows that are for validation. With cross-validation (`cv`)
            they are training rows, too.
        folds: The number of folds that the rows are divided into; each fold has the test rows of
            one repetition. Groups stay together.
        positive: The label of a binary target that is class 1, whose probability is modelled; null:
            the second one in the order of numbers or of letters.
        replace: Whether to forget the results on an earlier table of the same name.
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
    test_size: Annotated[float, Meta(gt=0, lt=1)] | None = None
    validation_size: Annotated[float, Meta(gt=0, lt=1)] | None = None
    folds: Annotated[int, Meta(ge=2, le=100)] | None = None
    positive: str | None = None
    replace: bool = False
