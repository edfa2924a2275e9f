"""A cell: the smallest thing with a result, and its key.

A run asks for cells as `Asked`: the candidates of one selection, under a `Setting`. It trains them
in `batches`, which have an order.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Self

import msgspec

from dlmexp.common.limits import Evaluate, Folding
from dlmexp.common.literals import literal
from dlmexp.core.folds import fold_size

# Raised when the meaning of a field changes, so that old records are not taken for new ones.
KEY_VERSION = 1
KEY_DIGITS = 20
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# What a record may say: a name is also that of a folder, and a number must fit into tables.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(pattern=r"^(?!\.+$)[^/\\\x00-\x1f\x7f]{1,200}$")]
InitialWord = Annotated[str, msgspec.Meta(pattern="^(sqrt|median)$")]


class Cell(msgspec.Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Everything that changes a result, and nothing else. Values that do not apply are None.

    A field that is added has a default, which means what cells without the field meant; it comes
    last, and enters the key only where it differs from that default. So the keys of all earlier
    records stay what they were.
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
    criterion: str = "mean"  # what the tolerance is compared with: spread per row | sum | relative
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
    # What selects among candidates in place of validation rows, which n then counts too: a number
    # of folds | holdout | loo (each row, in closed form). The cell is the fit to all n rows, or,
    # with `fold` (from 0), to those outside of that fold.
    cv: Folding | None = None
    fold: Count | None = None
    # Evaluations of L-BFGS of the ELBO at whose end training starts; 0: at the initial values.
    pilot: Count = 0

    @cached_property
    def key(self) -> str:
        """A name that is the same on every machine.

        It is the first 20 digits of a SHA-256 of the fields.
        """
        values: dict[str, Any] = {**msgspec.structs.asdict(self), "version": KEY_VERSION}
        options = dict(values.pop("options"))
        for name in FIRST_OPTIONS:
            values[name] = options.pop(name, None)
        if options:
            values["options"] = options
        for name, default in LATER.items():
            if values[name] == default:
                del values[name]
        return hashlib.sha256(ENCODER.encode(values).encode()).hexdigest()[:KEY_DIGITS]

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def group(self) -> tuple[Any, ...]:
        """What cells of one batch must share: all but seed, fold, beta and base.

        Fits to all rows are not in the batches of folds, which have fewer.
        """
        return (*self.values(SHARED), self.fold is None)

    def values(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the fields with these names, as something that can be compared and hashed."""
        return tuple([_hashable(value) for value in attrgetter(*names)(self)])

    @property
    def repetition(self) -> tuple[int, int]:
        """The rows that it is trained on, among the cells of a batch: seed and fold; -1: all."""
        return self.seed, -1 if self.fold is None else self.fold

    @property
    def training_rows(self) -> int:
        """The number of rows that it is trained on: n without its fold."""
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
        """Estimator and samples, and what is unusual of q, noise, objective and optimiser.

        An example is `bmc-10 unwhitened noise>0.01`.
        """
        samples = "" if self.samples is None else f"-{self.samples}"
        q = "" if self.parameterisation == "whitened" else f" {self.parameterisation}"
        floor = "" if self.noise_floor is None else f" noise>{self.noise_floor:g}"
        options = "".join(f" {name}={value:g}" for name, value in self.objective_options.items())
        optimizer = "" if self.optimizer == "adam" else f" {self.optimizer}"
        restarts = f" restarts={self.restarts}" if self.restarts else ""
        return f"{self.estimator}{samples}{q}{floor}{options}{optimizer}{restarts}"

    @property
    def iterations_per_epoch(self) -> int:
        """Iterations in one epoch: its whole minibatches, or a single one with all rows."""
        return self.training_rows // self.minibatch if self.minibatch else 1

    @property
    def iterations(self) -> int:
        """The limit of iterations; 0 where nothing is trained."""
        if self.epochs:
            return self.epochs * self.iterations_per_epoch
        return self.max_iterations or 0

    @property
    def solved(self) -> bool:
        """Whether the cell is solved, not trained.

        Its hyperparameters are held, and q has a closed form.
        """
        return self.variant == "fixed" and self.form == "collapsed"

    @property
    def evaluate_every(self) -> int | None:
        """Iterations between evaluations during training; None if there are none."""
        if self.evaluate == "end":
            return None
        return self.iterations_per_epoch if self.evaluate == "epoch" else int(self.evaluate)

    def describe(self) -> str:
        """Return in one line for people what is trained on which data."""
        beta = "" if self.beta is None else f" beta={self.beta:g}"
        components = "" if self.components == 1 else f" K={self.components}"
        trained = f"{self.variant} {self.objective} {self.model_label}{beta}{components}"
        fold = "" if self.fold is None else f" fold {self.fold + 1}"
        return f"{self.dataset} n={self.n} seed={self.seed}{fold} {trained}"


def _hashable(value: Any) -> Any:
    """Return the value of a field, a dictionary as its sorted items."""
    return tuple(sorted(value.items())) if type(value) is dict else value


FIELDS = Cell.__struct_fields__
# Options of estimators that are fields of their own in records of format 1.
FIRST_OPTIONS = ("samples", "nu", "nodes", "sampler")
# Fields that were added later, with their defaults. That of a dictionary is empty.
LATER = {
    field.name: {} if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Cell)[FIELDS.index("base") + 1 :]
}
# In what the candidates of one selection differ.
SELECTED = ("beta", "components", "split_at")
# Fields that cells of one batch share.
SHARED = tuple(name for name in FIELDS if name not in ("beta", "seed", "fold", "base"))
Batch = tuple[Cell, ...]
Changes = Mapping[str, Any]  # values that differ from those of a protocol, by dotted names


class Setting(msgspec.Struct, frozen=True, dict=True):
    """A protocol, and the values that differ from it.

    Attributes:
        protocol: The name of the protocol.
        changes: The values by the names that `dlmexp run` knows, in their order.
        selection: The metric that selects beta: `reported`, or `nll` for all.
    """

    protocol: str
    changes: dict[str, Any] = {}
    selection: str = "reported"

    def __post_init__(self) -> None:
        if self.protocol == "converged":  # its name in records before version 0.3
            msgspec.structs.force_setattr(self, "protocol", "annealed")

    @cached_property
    def text(self) -> str:
        """The changes for display, such as `training.lr=0.01, M=50`; '' where there are none.

        Equal texts are equal values.
        """
        return ", ".join(assignments(self.changes))


def assignments(changes: Changes) -> list[str]:
    """Return each change as `name=value`, as `dlmexp run` takes it."""
    return [f"{name}={literal(value)}" for name, value in changes.items()]


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidates of one selection, as a run asks for them.

    They are cells that differ only in beta and in the components of q, the largest beta and of
    equal betas the fewest components first. It is a single one where there is nothing to select.
    """

    method: str
    dataset: Name
    n: int
    seed: int
    size: str  # as it was typed: '5%', '100'
    label: str  # estimator and q, for people: 'bmc-10 unwhitened'
    experiment: str
    role: str  # fit | curve | gradient, or what the experiment says, such as anatomy
    setting: Setting
    betas: tuple[float | None, ...]
    keys: tuple[str, ...]
    stands_for: str | None = None  # the paper's dataset that this one stands in for
    components: tuple[int, ...] = ()  # of each candidate; empty: q is a single Gaussian
    # Keys of the cells of folds, candidate by candidate; empty: validation rows select. With folds,
    # `keys` are of fits to all rows, of which only those of selected candidates are trained.
    folds: tuple[str, ...] = ()
    only_selected: bool = False  # `keys` are those of selected candidates, folds are left out

    @classmethod
    def of(
        cls, method: str, cells: Sequence[Cell], folds: Sequence[Cell] = (), **other_fields: Any
    ) -> Self:
        """Return what is asked for with these cells.

        Args:
            method: The name of the method.
            cells: The candidates in their order.
            folds: The cells of their folds, candidate by candidate.
            **other_fields: The fields that the cells do not have.
        """
        cell = cells[0]
        components = tuple(candidate.components for candidate in cells)
        return cls(
            method,
            cell.dataset,
            cell.n,
            cell.seed,
            label=cell.model_label,
            betas=tuple(candidate.beta for candidate in cells),
            keys=tuple(candidate.key for candidate in cells),
            components=components if max(components) > 1 else (),
            folds=tuple(cell.key for cell in folds),
            **other_fields,
        )

    def describe(self, key: str) -> str:
        """Return one line for people about the candidate with this key."""
        fold = ""
        if key in self.folds:
            count = len(self.folds) // len(self.keys)
            candidate, number = divmod(self.folds.index(key), count)
            fold = f" fold {number + 1}"
        else:
            candidate = self.keys.index(key)
        beta = self.betas[candidate]
        chosen = "" if beta is None else f" beta={beta:g}"
        if self.components:
            chosen += f" K={self.components[candidate]}"
        repetition = f"{self.dataset} n={self.n} seed={self.seed}{fold}"
        return f"{repetition} {self.method} {self.label}{chosen}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What is equal where the same is asked for again."""
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

    The order in which cells are given does not matter. Small batches come before large ones, so
    that something shows early; ELBO fits before the fixed variants that start from them. Batches
    are cut from all cells and then lose those that are skipped: who trains with whom, and with it
    the last bit of a result, does not depend on how far an interrupted run had come.

    Args:
        cells: All cells.
        skip: Keys of cells that need no training.
        cells_at_once: Returns how many cells like the given one fit into a batch.
    """
    by_key = {cell.key: cell for cell in cells}
    if by_key.keys() <= skip:
        return []
    groups = _batch_groups(by_key)
    cut: list[list[Cell]] = []
    for rank in sorted(groups, key=lambda rank: (*rank[:3], str(rank[3:]))):
        members = groups[rank]
        cut += _even_parts(members, cells_at_once(members[0]))
    pending = []
    for batch in cut:
        cells_to_train = tuple(cell for cell in batch if cell.key not in skip)
        if cells_to_train:
            pending.append(cells_to_train)
    return pending


def _batch_groups(cells: dict[str, Cell]) -> dict[tuple, list[Cell]]:
    """Return the cells that may train together, by what ranks them: work, dataset, has a base."""
    bases: dict[tuple, set[str]] = {}
    for cell in cells.values():
        bases.setdefault((cell.group, cell.repetition), set()).add(cell.base or "")
    groups: dict[tuple, list[Cell]] = {}
    for cell in sorted(cells.values(), key=lambda cell: (cell.repetition, -(cell.beta or 0.0))):
        # A batch takes one fit per seed and fold as its start: cells that start from another one
        # are grouped with their like.
        start = sorted(bases[cell.group, cell.repetition]).index(cell.base or "")
        rank = (cell.M * cell.n, cell.dataset, cell.base is not None, cell.group, start)
        groups.setdefault(rank, []).append(cell)
    return groups


def _even_parts(cells: list[Cell], most: int) -> list[list[Cell]]:
    """Return the cells in as few parts as possible, all of even size."""
    count = -(-len(cells) // max(1, most))
    ends = [len(cells) * i // count for i in range(count + 1)]
    return [cells[start:end] for start, end in pairwise(ends)]
