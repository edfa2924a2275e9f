"""A cell: the smallest thing with a result, and its key."""

import hashlib
import json
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any

import msgspec

KEY_VERSION = 1  # raised when the meaning of a field changes, so that old records are not taken for new ones
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
Option = bool | int | float | str
# What a record may say: a name is also that of a folder, and a number must fit into tables.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(pattern=r"^(?!\.+$)[^/\\\x00-\x1f\x7f]{1,200}$")]
Evaluate = Annotated[str, msgspec.Meta(pattern=r"^(end|epoch|[1-9]\d{0,15})$")]


class Cell(msgspec.Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """Everything that changes a result, and nothing else. Values that do not apply are None.

    A field that is added has a default, which means what cells without the field meant; it comes last, and enters the
    key only where it differs from that default. So the keys of all earlier records stay what they were.
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
    options: dict[str, Option]  # of the estimator: samples, nu, ...
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
    base: str | None = None  # key of the base fit (ELBO, PPGPR) whose hyperparameters a fixed variant takes
    initial: dict[str, float] = {}  # initial hyperparameters other than the model's own
    inducing: str = "first"  # which training rows are the initial inducing inputs: first | last
    minibatch_rows: str = "epochs"  # epochs | afresh (drawn without replacement at every step)
    criterion: str = "mean"  # what the tolerance is compared with: spread per row | sum | relative
    final_lr: float | None = None  # of a learning rate that decays, ...
    decay: Count | None = None  # ... within so many iterations
    epsilon: float = 1e-8  # of Adam
    resolution: float | None = None  # Adam's steps are multiples of lr * resolution
    noise_floor: float | None = None  # which the noise variance stays above; of a fixed variant: that of its base fit

    @cached_property
    def key(self) -> str:
        """A name that is the same on every machine: the first 20 digits of a SHA-256 of the fields."""
        values: dict[str, Any] = {"version": KEY_VERSION}
        values |= {name: getattr(self, name) for name in FIRST_FIELDS}
        values |= {name: self.options.get(name) for name in FIRST_OPTIONS}
        if later := {name: value for name, value in self.options.items() if name not in FIRST_OPTIONS}:
            values["options"] = later
        for name, default in LATER_FIELDS.items():
            if (value := getattr(self, name)) != default:
                values[name] = value
        return hashlib.sha256(ENCODER.encode(values).encode()).hexdigest()[:20]

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def group(self) -> tuple[Any, ...]:
        """What cells of one batch must share: all but seed, beta and base."""
        return self.values(SHARED)

    def values(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Some of the fields, as something that can be compared and hashed."""
        values = attrgetter(*names)(self)
        return tuple([tuple(sorted(value.items())) if type(value) is dict else value for value in values])

    @property
    def samples(self) -> int | None:
        """Samples per row that the estimator draws; None if it draws none."""
        samples = self.options.get("samples")
        return None if samples is None else int(samples)

    @property
    def estimator_label(self) -> str:
        """The estimator, with its number of samples where it has one: `exact`, `bmc-10`."""
        return self.estimator if self.samples is None else f"{self.estimator}-{self.samples}"

    @property
    def floor_label(self) -> str:
        """The floor of the noise as text to append: ` noise>0.01`, or nothing."""
        return "" if self.noise_floor is None else f" noise>{self.noise_floor:g}"

    @property
    def model_label(self) -> str:
        """Estimator, q where it is not whitened, and floor of the noise: `bmc-10 unwhitened noise>0.01`."""
        q = "" if self.parameterisation == "whitened" else f" {self.parameterisation}"
        return f"{self.estimator_label}{q}{self.floor_label}"

    @property
    def iterations_per_epoch(self) -> int:
        return self.n // self.minibatch if self.minibatch else 1

    @property
    def iterations(self) -> int:
        """The limit; 0 where nothing is trained."""
        return self.epochs * self.iterations_per_epoch if self.epochs else self.max_iterations or 0

    @property
    def solved(self) -> bool:
        """Whether it is solved, not trained: its hyperparameters are held, and q has a closed form."""
        return self.variant == "fixed" and self.form == "collapsed"

    @property
    def has_stopping_rule(self) -> bool:
        """Whether it trains until convergence, and not for a number of epochs or iterations."""
        return self.window is not None and self.max_iterations is not None

    @property
    def evaluate_every(self) -> int | None:
        """Iterations between evaluations during training; None if there are none."""
        if self.evaluate == "end":
            return None
        return self.iterations_per_epoch if self.evaluate == "epoch" else int(self.evaluate)

    def describe(self) -> str:
        """One line for people: what is trained on what."""
        beta = "" if self.beta is None else f" beta={self.beta:g}"
        trained = f"{self.variant} {self.objective} {self.model_label}{beta}"
        return f"{self.dataset} n={self.n} seed={self.seed} {trained}"


FIELDS = Cell.__struct_fields__
FIRST_OPTIONS = ("samples", "nu", "nodes", "sampler")  # fields of their own in records of format 1
FIRST_FIELDS = tuple(name for name in FIELDS[: FIELDS.index("base") + 1] if name != "options")
LATER_FIELDS = {
    field.name: {} if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Cell)[FIELDS.index("base") + 1 :]
}  # with their defaults
SHARED = tuple(name for name in FIELDS if name not in ("beta", "seed", "base"))
