"""Overrides of `dlmexp run`, sound and unsound, made from the schema, and what is wrong with the answer to them."""

import contextlib
import io
import random
import signal
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import get_args, get_origin

from dlmexp.cli import main
from dlmexp.config import RunConfig

BASE = [
    "dataset=ringnorm_drawn", "method=[elbo,fixed_log_dlm]", "estimator=[ups]", "beta=list",
    "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=5", "sizes=[20]", "seeds=[0]", "device=cpu",
]  # fmt: skip
KEYS_OF_DICTS = {
    "dataset": ("ringnorm_drawn", "nosuch"), "method": ("elbo", "fixed_log_dlm", "nosuch"),
    "estimator": ("ups", "nosuch"), "training": ("binary", "regression", "large", "nosuch"),
    "options": ("rows", "seed", "checks", "nosuch"), "initial": ("lengthscale", "nosuch"), "estimator_lr": ("ups",),
    "by_method": ("elbo", "nosuch"), "arrays": ("X", "y"),
}  # fmt: skip
GROUPS = ("dataset", "method", "estimator", "protocol", "beta", "experiment", "preset", "hydra/launcher")
# They would write elsewhere, read elsewhere, or import something.
LEFT_ALONE = ("results", "plan", "data_root", "plugins", "csv.path", "csv.test", "workers", "budget")
VALUES = (
    "0", "1", "5", "-1", "20", "1.5", "0.1", "1e-3", "1e300", "-1e300", "1e9999999", "nan", "inf", "-inf", "1_000",
    "99999999999999999999999999", "true", "false", "null", "???", "", "''", '""', "a", "A b", "ü", "\U0001f600",
    "x" * 300,
    "../../x", "/", ".", "..", "~", "%", "5%", "'5%'", "1e9999999%", "'1e9999999%'", "101%", "whitened", "all", "elbo",
    "ups", "end", "epoch", "first", "mean", "zero", "probit", "rbf", "cuda:99", "float32", "0-4", "4-0",
    "0-99999999999",
    "[]", "[0]", "[1]", "[1,2]", "[0.1,1]", "[[1]]", "[[]]", "[a]", "[null]", "[-1]", "[nan]", "[true]", "['5%']",
    "['1e9999999%']", "[1e9999999]", "[{a:1}]", "['']", "[0-4]", "[0,[1]]", "[99999999999999999999]", "[whitened]",
    "{}", "{a:1}", "{a:{b:1}}", "{1:2}", "{a:[1]}", "{lengthscale:1}", "{lengthscale:a}", "{samples:[1]}", "{rows:30}",
    "{checks:5}", "{checks:{y_range:5}}", "${name}", "${nosuch}", "${oc.env:NOSUCH}", "${", "}", "[", "]", "[1,2", "{a",
    "'", '"', "a,b", "1,2", "range(3)", "range(1,3)", "choice(1,2)", "sort(3,1)", "int(3)", "str(3)", "glob(*)",
    "interval(0,1)", "=", "a=b", "==", "\\", "\\,", "a:b", "a b c", "\t", "1,", ",", "(1)", "<>", "#", "!", "*", "@",
    "`",
)  # fmt: skip
PREFIXES = ("", "", "", "", "", "", "+", "++", "~")


def keys(node: type = RunConfig, prefix: str = "") -> Iterator[str]:
    """Every setting of the schema; of dictionaries, some keys."""
    for one in fields(node):
        name = prefix + one.name
        yield name
        kind = one.type
        names = [name]
        if get_origin(kind) is dict:
            names = [f"{name}.{key}" for key in KEYS_OF_DICTS.get(one.name, ("nosuch",))]
            kind = get_args(kind)[1]
            yield from names
        if isinstance(kind, type) and is_dataclass(kind):
            for each in names:
                yield from keys(kind, f"{each}.")
        elif one.name == "options":
            yield from (f"{name}.checks.{check}" for check in ("y_range", "x_range", "positives", "positive_share"))
        elif one.name == "estimator":
            yield from (f"{each}.{option}" for each in names for option in ("samples", "sampler", "nodes", "nu"))


SETTINGS = [key for key in dict.fromkeys(keys()) if key not in LEFT_ALONE and not key.startswith("parts")]
SHORT = [
    "beta", "seeds", "sizes", "M", "lr", "lengthscale", "noise", "training.lr", "training.max_iterations", "largest",
]  # fmt: skip
HANGS = 60  # seconds, after which a case counts as hanging; a sound one takes a fraction of one
SECTIONS = [[key for key in SETTINGS if key.partition(".")[0] == one] for one in dict.fromkeys(
    key.partition(".")[0] for key in SETTINGS)]  # fmt: skip
PLAUSIBLE = ("0", "1", "2", "5", "20", "30", "0.1", "1.5", "1e-3", "true", "false", "null", "a", "[]", "[0]", "[1,2]",
             "[0.1,1]", "['50%']", "{}", "whitened", "5%", "0-4", "[[1]]", "{a:1}", "-1", "99999999999999")  # fmt: skip


def setting(rng: random.Random) -> str:
    """A key: one of the short ones, of those with much below them, or any."""
    chance = rng.random()
    if chance < 0.15:
        return rng.choice(SHORT)
    return rng.choice(rng.choice(SECTIONS) if chance < 0.75 else SETTINGS)


def values_of(rng: random.Random) -> str:
    return rng.choice(PLAUSIBLE if rng.random() < 0.5 else VALUES)


def settings(rng: random.Random, count: int) -> Iterator[list[str]]:
    """One to three overrides of single settings."""
    for _ in range(count):
        words = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            key = setting(rng)
            if rng.random() < 0.03:
                key = key[:-1] + rng.choice("xyz.")
            prefix = rng.choice(PREFIXES)
            bare = prefix == "~" and rng.random() < 0.8
            words.append(prefix + key if bare else f"{prefix}{key}={values_of(rng)}")
        yield words


def groups(rng: random.Random, count: int) -> Iterator[list[str]]:
    """Selections of config groups, and what no key can be."""
    odd = ("=", "==", "", "a", "-", "--", "=1", " =1", "a b=1", "ä=1", "[=1", "${a}=1", "hydra.run.dir=x", "hydra=x")
    named = ("banana", "[banana]", "[elbo,elbo]", "grid", "list", "quick", "debug", "paper", "default", "csv", "[csv]")
    for _ in range(count):
        if rng.random() < 0.2:
            yield [rng.choice(odd)]
        else:
            value = rng.choice(named) if rng.random() < 0.4 else values_of(rng)
            yield [f"{rng.choice(PREFIXES)}{rng.choice(GROUPS)}={value}"]


def wrong(words: list[str]) -> str | None:
    """What is wrong with the answer to these overrides; None if it is a plan, or one sentence and exit code 2."""
    try:
        code, said = _answer(words)
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    if code not in (0, 2):
        return f"exit code {code}"
    if code == 2 and (said.count("\n") != 1 or not said.startswith("dlmexp: ") or len(said) > 1500):
        return f"not one sentence: {said[:200]!r}"
    return None


def _answer(words: list[str]) -> tuple[int, str]:
    """The exit code, and what was said on stderr."""

    def hangs(*_: object) -> None:
        raise TimeoutError(f"{words} hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            return main(["run", *words, "plan=true"]), said.getvalue()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
