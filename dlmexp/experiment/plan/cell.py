"""A cell: the smallest thing with a result, and its key.

A run requests cells in groups (`CandidateGroup`): one selection is made among the cells of a group,
which have one `Setting`. The cells are trained in `batches`, which have an order.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Self

import msgspec

from dlmexp.common.limits import Evaluate, Folding
from dlmexp.common.literals import literal
from dlmexp.core.folds import fold_size

# Increased when the meaning of a field changes, so that old records are not taken for new ones.
KEY_VERSION = 1
KEY_DIGITS = 20
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# The limits of values in a record. Some tables have counts as float64: a `Count` is exact in that
# type. The names of datasets are names of folders too, so a `Name` allows no path.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(pattern=r"^(?!\.+$)[^/\\\x00-\x1f\x7f]{1,200}$")]
InitialWord = Annotated[str, msgspec.Meta(pattern="^(sqrt|median)$")]


class Cell(msgspec.Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Everything that changes a result, and nothing else. Values that do not apply are None.

    To keep the keys of earlier records, a new field comes last, and its default is what cells did
    before there was such a field. It is part of the key only if it differs from that default.
    """

    kind: str  # fit | gradient
    dataset: Name
    data: str  # checksum of the data
    split: str  # kind and version of the split
    task: str
    likelihood: str
    kernel: str
    ard: bool
    mean: str
    M: Count
    n: Count
    objective: str
    variant: str
    form: str  # collapsed | explicit
    parameterisation: str
    estimator: str
    options: dict[str, bool | int | float | str]  # of the estimator: samples, nu, ...
    lr: float
    minibatch: Count | None
    window: Count | None
    tolerance: float | None
    max_iterations: Count | None
    epochs: Count | None
    evaluate: Evaluate
    dtype: str
    seed: Count
    beta: float | None
    # Key of the base fit (ELBO, PPGPR) whose hyperparameters a fixed variant takes.
    base: str | None = None
    # Initial hyperparameters other than the model's own; a lengthscale may be sqrt | median.
    initial: dict[str, float | InitialWord] = {}
    inducing: str = "first"  # initial inducing inputs: first | last | kmeans | greedy
    minibatch_rows: str = "epochs"  # epochs | afresh (drawn without replacement at every step)
    # The spread of the objective that is compared with the tolerance: mean (per row) | sum |
    # relative.
    criterion: str = "mean"
    # The learning rate decays to `final_lr` within `decay` iterations.
    final_lr: float | None = None
    decay: Count | None = None
    epsilon: float = 1e-8  # of Adam
    resolution: float | None = None  # Adam's steps are multiples of lr * resolution
    # The noise variance stays above this value; in a fixed variant it is that of the base fit.
    noise_floor: float | None = None
    # Options of the objective, where they differ from its defaults: alpha, blocks, ...
    objective_options: dict[str, float] = {}
    components: Count = 1  # Gaussians that q is a mixture of
    # The iteration before which a mixture is split into its components; None: half of the limit.
    split_at: Count | None = None
    optimizer: str = "adam"  # adam | lbfgs
    restarts: Count = 0  # of L-BFGS: further starts, of which the best end counts
    # How the rows are divided for cross-validation, which then selects among candidates: a number
    # of folds | holdout | loo (each row, in closed form). No rows are for validation alone, and n
    # counts all of them. None: validation rows select.
    cv: Folding | None = None
    # The number of the fold that is left out in training, from 0; None: a fit to all n rows.
    fold: Count | None = None
    # Training starts where this many evaluations of L-BFGS on the ELBO end; 0: at initial values.
    pilot: Count = 0

    @cached_property
    def key(self) -> str:
        """A name that is the same on every machine.

        It is the first 20 digits of a SHA-256 of the fields.
        """
        values: dict[str, Any] = {**msgspec.structs.asdict(self), "version": KEY_VERSION}
        # The first records had some options as fields; the key has them so still, with None where
        # an estimator lacks the option.
        options = dict(values.pop("options"))
        for name in FIRST_OPTIONS:
            values[name] = options.pop(name, None)
        if options:
            values["options"] = options
        # Cells at the defaults of later fields keep the keys that they had without these fields.
        for name, default in LATER_DEFAULTS.items():
            if values[name] == default:
                del values[name]
        text = ENCODER.encode(values)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def shared_values(self) -> tuple[Any, ...]:
        """The values that cells of one batch must share: all but seed, fold, beta and base.

        Cells of a batch have the same number of training rows. Therefore the last value keeps fits
        to all rows apart from fits that leave out a fold.
        """
        is_fit_to_all_rows = self.fold is None
        return (*self.values(SHARED_IN_BATCH), is_fit_to_all_rows)

    def values(self, names: Iterable[str]) -> tuple[Any, ...]:
        """Return the values of these fields in hashable form."""
        return tuple(_hashable(getattr(self, name)) for name in names)

    @property
    def repetition(self) -> tuple[int, int]:
        """Seed and fold (-1: none), which determine the training rows of a cell in a batch."""
        fold = -1 if self.fold is None else self.fold
        return self.seed, fold

    @property
    def training_rows(self) -> int:
        """The number of rows that the cell is trained on: n without those of its fold."""
        if self.cv is None or self.fold is None:
            return self.n
        return self.n - fold_size(self.n, self.cv)

    @property
    def samples(self) -> int | None:
        """Samples per row that the estimator draws; None if it draws none."""
        samples = self.options.get("samples")
        return None if samples is None else int(samples)

    @property
    def model_label(self) -> str:
        """The estimator, followed by what is not the default, as in `bmc-10 unwhitened noise>0.01`.

        This may be about the parameterisation of q, the noise, the objective and the optimiser.
        """
        estimator = self.estimator
        if self.samples is not None:
            estimator += f"-{self.samples}"
        words = [estimator]
        if self.parameterisation != "whitened":
            words.append(self.parameterisation)
        if self.noise_floor is not None:
            words.append(f"noise>{self.noise_floor:g}")
        for name, value in self.objective_options.items():
            words.append(f"{name}={value:g}")
        if self.optimizer != "adam":
            words.append(self.optimizer)
        if self.restarts:
            words.append(f"restarts={self.restarts}")
        return " ".join(words)

    @property
    def iterations_per_epoch(self) -> int:
        """Iterations in one epoch: one for each full minibatch, or a single one with all rows."""
        return self.training_rows // self.minibatch if self.minibatch else 1

    @property
    def iterations(self) -> int:
        """The limit of iterations; 0 where nothing is trained."""
        if self.epochs:
            return self.epochs * self.iterations_per_epoch
        return self.max_iterations or 0

    @property
    def is_solved(self) -> bool:
        """Whether the cell is solved in closed form and not trained.

        This holds if its hyperparameters are fixed and q has a closed form.
        """
        return self.variant == "fixed" and self.form == "collapsed"

    @property
    def evaluate_every(self) -> int | None:
        """The number of iterations between evaluations; None: only at the end of training."""
        if self.evaluate == "end":
            return None
        return self.iterations_per_epoch if self.evaluate == "epoch" else int(self.evaluate)

    def describe(self) -> str:
        """Return the data, the objective and the model as one line for people."""
        beta = "" if self.beta is None else f" beta={self.beta:g}"
        components = "" if self.components == 1 else f" K={self.components}"
        model = f"{self.variant} {self.objective} {self.model_label}{beta}{components}"
        fold = "" if self.fold is None else f" fold {self.fold + 1}"
        return f"{self.dataset} n={self.n} seed={self.seed}{fold} {model}"


def _hashable(value: Any) -> Any:
    """Return the value of a field; of a dictionary its sorted items, which are hashable."""
    return tuple(sorted(value.items())) if type(value) is dict else value


def _later_defaults() -> dict[str, Any]:
    """Return the defaults of the fields of `Cell` that were added after the first records."""
    first_later = FIELDS.index("base") + 1
    defaults: dict[str, Any] = {}
    for field in msgspec.structs.fields(Cell)[first_later:]:
        # The default of a dictionary is a factory.
        defaults[field.name] = {} if field.default is msgspec.NODEFAULT else field.default
    return defaults


FIELDS = Cell.__struct_fields__
# Options of estimators that are fields of their own in records of format 1.
FIRST_OPTIONS = ("samples", "nu", "nodes", "sampler")
LATER_DEFAULTS = _later_defaults()
# The fields in which the candidates of one selection may differ.
SELECTED_FIELDS = ("beta", "components", "split_at")
# The fields in which cells of one batch agree.
SHARED_IN_BATCH = tuple(name for name in FIELDS if name not in ("beta", "seed", "fold", "base"))
Batch = tuple[Cell, ...]
Changes = Mapping[str, Any]  # values that differ from those of a protocol, by dotted names


def keys_of(cells: Iterable[Cell]) -> set[str]:
    """Return the keys of cells."""
    return {cell.key for cell in cells}


def base_keys(cells: Iterable[Cell]) -> set[str]:
    """Return the keys of the base fits that cells start from."""
    return {cell.base for cell in cells if cell.base}


def without_keys(cells: Iterable[Cell], keys: Set[str]) -> Batch:
    """Return the cells whose keys are not among `keys`."""
    return tuple(cell for cell in cells if cell.key not in keys)


def cell_count(batches: Iterable[Batch]) -> int:
    """Return the number of cells in batches."""
    return sum(map(len, batches))


class Setting(msgspec.Struct, frozen=True, dict=True):
    """A protocol, and the values that differ from it.

    Attributes:
        protocol: The name of the protocol.
        changes: The values by the dotted names of settings of `dlmexp run`.
        selection: The metric that selects beta: `reported` (each reported metric for itself), or
            `nll` for all.
    """

    protocol: str
    changes: dict[str, Any] = {}
    selection: str = "reported"

    def __post_init__(self) -> None:
        if self.protocol == "converged":  # its name in records before version 0.3
            msgspec.structs.force_setattr(self, "protocol", "annealed")

    @cached_property
    def text(self) -> str:
        """The changes for display, such as `training.lr=0.01, M=50`; '' if there are none.

        Texts are equal if and only if the values are.
        """
        return ", ".join(assignments(self.changes))


def assignments(changes: Changes) -> list[str]:
    """Return each change as `name=value`, as `dlmexp run` takes it."""
    return [f"{name}={literal(value)}" for name, value in changes.items()]


class CandidateGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cells among which a run selects one, the candidates.

    Candidates differ only in beta and in the number of components of q. The largest beta comes
    first, and of equal betas the fewest components. If nothing is selected, a group has a single
    candidate.
    """

    method: str
    dataset: Name
    n: int
    seed: int
    size: str  # as it was typed: '5%', '100'
    label: str  # estimator and q, for people: 'bmc-10 unwhitened'
    experiment: str
    role: str  # fit | curve | gradient, or a role that the experiment names, such as anatomy
    setting: Setting
    betas: tuple[float | None, ...]
    keys: tuple[str, ...]
    stands_for: str | None = None  # the paper's dataset that this one stands in for
    components: tuple[int, ...] = ()  # of each candidate; empty: q is a single Gaussian
    # Keys of the fits that leave out a fold, candidate by candidate; empty: validation rows select.
    # With folds, `keys` are those of the fits to all rows. Only the fits of selected candidates are
    # trained.
    folds: tuple[str, ...] = ()
    # Whether the group was reduced after the selection: `keys` are those of selected candidates
    # only, and `folds` is empty.
    only_selected: bool = False

    @classmethod
    def of(
        cls, method: str, cells: Sequence[Cell], folds: Sequence[Cell] = (), **other_fields: Any
    ) -> Self:
        """Return the group of these candidates.

        Args:
            method: The name of the method.
            cells: The candidates in their order.
            folds: The fits that leave out a fold, candidate by candidate.
            **other_fields: The fields that cells do not have.
        """
        first = cells[0]
        components = tuple(candidate.components for candidate in cells)
        return cls(
            method=method,
            dataset=first.dataset,
            n=first.n,
            seed=first.seed,
            label=first.model_label,
            betas=tuple(candidate.beta for candidate in cells),
            keys=tuple(candidate.key for candidate in cells),
            components=components if max(components) > 1 else (),
            folds=tuple(cell.key for cell in folds),
            **other_fields,
        )

    @property
    def folds_per_candidate(self) -> int:
        """The number of folds of each candidate."""
        return len(self.folds) // len(self.keys)

    def describe(self, key: str) -> str:
        """Return one line for people about the candidate with this key."""
        fold = ""
        if key in self.folds:
            candidate, fold_number = divmod(self.folds.index(key), self.folds_per_candidate)
            fold = f" fold {fold_number + 1}"
        else:
            candidate = self.keys.index(key)
        values_of_candidate = ""
        beta = self.betas[candidate]
        if beta is not None:
            values_of_candidate += f" beta={beta:g}"
        if self.components:
            values_of_candidate += f" K={self.components[candidate]}"
        repetition = f"{self.dataset} n={self.n} seed={self.seed}{fold}"
        return f"{repetition} {self.method} {self.label}{values_of_candidate}"

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that tell groups apart: two requests with equal values are the same group."""
        return (
            self.experiment,
            self.role,
            self.method,
            self.setting.protocol,
            self.setting.text,
            self.keys,
        )


def batches(
    cells: Iterable[Cell], skip: Set[str], cells_at_once: Callable[[Cell], int]
) -> list[Batch]:
    """Return cells in batches of equal shape, without those whose keys are in `skip`.

    Batches with little work come before those with much, so that first results are soon there;
    base fits come before the fixed variants that start from them.

    Which cells train together changes the last bit of a result. So batches are formed from all
    cells, and only then are cells skipped: a run that goes on after an interruption forms the same
    batches as a run without one.

    Args:
        cells: All cells, in any order.
        skip: Keys of cells that need no training.
        cells_at_once: Returns how many cells like the given one fit into a batch.
    """
    by_key = {cell.key: cell for cell in cells}
    if by_key.keys() <= skip:
        return []
    trained_together = _cells_to_train_together(by_key)
    batches_of_all_cells: list[Batch] = []
    for shared in sorted(trained_together, key=_order_of_batches):
        members = trained_together[shared]
        batches_of_all_cells += _even_parts(members, cells_at_once(members[0]))
    pending: list[Batch] = []
    for batch in batches_of_all_cells:
        cells_to_train = without_keys(batch, skip)
        if cells_to_train:
            pending.append(cells_to_train)
    return pending


def _cells_to_train_together(by_key: dict[str, Cell]) -> dict[tuple, list[Cell]]:
    """Return lists of cells that may train together, by what the cells of a list share.

    That is the work of a step, the dataset, whether they start from a base fit,
    `Cell.shared_values`, and the number of their base fit.
    """
    cells = by_key.values()
    # A batch starts from one base fit per seed and fold. Where cells of one seed and fold start
    # from several base fits, these are numbered, and only cells with equal numbers train together.
    bases: dict[tuple, set[str]] = {}
    for cell in cells:
        bases.setdefault((cell.shared_values, cell.repetition), set()).add(cell.base or "")
    trained_together: dict[tuple, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.repetition, -(cell.beta or 0.0))):
        base_number = sorted(bases[cell.shared_values, cell.repetition]).index(cell.base or "")
        work = cell.M * cell.n
        has_base = cell.base is not None
        shared = (work, cell.dataset, has_base, cell.shared_values, base_number)
        trained_together.setdefault(shared, []).append(cell)
    return trained_together


def _order_of_batches(shared: tuple) -> tuple:
    """Return the sort key of batches, from what their cells share.

    It consists of the work, the dataset and whether there is a base fit, then of a text with all
    other values: Python can't compare these, since their types differ and some are None.
    """
    return (*shared[:3], str(shared[3:]))


def _even_parts(cells: list[Cell], max_size: int) -> list[Batch]:
    """Return the cells in the fewest parts of at most `max_size`, of almost equal sizes."""
    count = math.ceil(len(cells) / max(1, max_size))
    bounds = [len(cells) * i // count for i in range(count + 1)]
    return [tuple(cells[start:end]) for start, end in pairwise(bounds)]
