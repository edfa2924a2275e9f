"""What a run asks for, written down as data: its setting (the protocol, and every value that differs from it), and
which cells are candidates of one another."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Self

import msgspec

from dlmexp.catalogue import entries
from dlmexp.config import DatasetConfig, RunConfig, literal
from dlmexp.plan.cell import Cell, Name

MODEL = ("likelihood", "kernel", "ard", "mean", "M", "split", "test_cap", "validation", "options")  # of a dataset
RENAMED = {"converged": "annealed"}  # protocols by the names that records before version 0.3 have
GENERAL = ("selection", "collapsed", "dtype")  # of a run


class Setting(msgspec.Struct, frozen=True):
    """A protocol, and the values that are different from it by the names that `dlmexp run` knows, in their order.
    `selection` is the metric that selects beta: the reported one, or always NLL."""

    protocol: str
    changes: dict[str, Any] = {}
    selection: str = "reported"

    def __post_init__(self) -> None:
        if self.protocol in RENAMED:
            msgspec.structs.force_setattr(self, "protocol", RENAMED[self.protocol])

    @property
    def text(self) -> str:
        """`training.lr=0.01, M=50`; '' for the values of the protocol itself. Equal texts are equal values."""
        return ", ".join(f"{name}={literal(value)}" for name, value in self.changes.items())


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidates of one selection, as a run asks for them: cells that differ only in beta, the largest first. A
    single one where there is nothing to select."""

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

    @classmethod
    def of(cls, method: str, cells: Sequence[Cell], **about: Any) -> Self:
        """What is asked for with these cells; `about` has what they do not say."""
        cell, betas, keys = cells[0], tuple(each.beta for each in cells), tuple(each.key for each in cells)
        return cls(method, cell.dataset, cell.n, cell.seed, label=cell.model_label, betas=betas, keys=keys, **about)

    def describe(self, key: str) -> str:
        """One line for people about one of the candidates."""
        beta = self.betas[self.keys.index(key)]
        chosen = "" if beta is None else f" beta={beta:g}"
        return f"{self.dataset} n={self.n} seed={self.seed} {self.method} {self.label}{chosen}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it the same as another one."""
        return self.experiment, self.role, self.method, self.setting.protocol, self.setting.text, self.keys


def cell_setting(cfg: RunConfig, usual: RunConfig, dataset: DatasetConfig, file: DatasetConfig, cell: Cell) -> Setting:
    """The setting that a cell is asked for under. `usual` is the config of the protocol (and preset) alone, `file` the
    dataset as its own file has it. What `cfg.factors` names is a column of results, not a change."""
    training, protocol = cfg.training[dataset.kind], usual.training[dataset.kind]
    beta = cfg.beta if cfg.beta.values is None else replace(usual.beta, values=cfg.beta.values)  # listed: no grid
    model = dataset if cfg.M is None else replace(dataset, M=cfg.M)
    compared = [("training", training, protocol)]
    compared += [(name, getattr(cfg, name), getattr(usual, name)) for name in GENERAL]
    compared += [("beta", beta, usual.beta)]
    compared += [(name, getattr(model, name), getattr(file, name)) for name in MODEL]
    pairs = [pair for name, value, other in compared for pair in _differing(name, value, other)]
    options = {name: value for name, value in cell.options.items() if name != "samples"}
    known = entries("estimator").get(cell.estimator, {})
    pairs += [(f"estimator.{cell.estimator}.{name}", v) for name, v in options.items() if v != known.get(name)]
    if cell.parameterisation not in protocol.parameterisation:
        pairs.append(("parameterisation", cell.parameterisation))
    ignored = {"training.parameterisation", *cfg.factors}
    if training.window is None and training.decay == training.max_iterations:  # it follows the limit that users type
        ignored.add("training.decay")
    # A preset's run has a name of its own, so that it is never taken for the protocol's.
    names = [name for name in ("" if cfg.preset and cfg.protocol == "paper" else cfg.protocol, cfg.preset) if name]
    return Setting("-".join(names), {name: value for name, value in pairs if name not in ignored}, cfg.selection)


def _differing(name: str, value: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of what is different, down to single values."""
    value, usual = (asdict(v) if is_dataclass(v) and not isinstance(v, type) else v for v in (value, usual))
    if isinstance(value, dict):
        for key in dict.fromkeys([*value, *(usual or {})]):
            yield from _differing(f"{name}.{key}", value.get(key), (usual or {}).get(key))
    elif value != usual:
        yield name, value
