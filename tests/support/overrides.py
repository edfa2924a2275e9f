"""Overrides of `dlmexp run`, sound and unsound."""

import random
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache

from dlmexp.plan.compose import compose

BASE = [
    "dataset=ringnorm_drawn", "method=[elbo,fixed_log_dlm]", "estimator=[ups]", "beta=list",
    "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=5", "sizes=[20]", "seeds=[0]", "device=cpu",
]  # fmt: skip
GROUPS = ("dataset", "method", "estimator", "protocol", "beta", "experiment", "preset", "hydra/launcher")
NAMED = ("banana", "[banana]", "[elbo,elbo]", "grid", "list", "quick", "debug", "paper", "default", "csv", "[csv]")
NO_KEYS = ("=", "==", "", "a", "-", "--", "=1", " =1", "a b=1", "ä=1", "[=1", "${a}=1", "hydra.run.dir=x", "hydra=x")
# They would write elsewhere, read elsewhere, or import something.
LEFT_ALONE = ("results", "plan", "data_root", "plugins", "csv.path", "csv.test", "workers", "budget", "parts")
SHORT = ("lr", "lengthscale", "noise", "training.lr", "training.max_iterations", "largest")
VALUES = (
    "0", "1", "-1", "20", "0.1", "1e300", "1e9999999", "nan", "-inf", "1_000", "99999999999999999999999999", "true",
    "null", "???", "", "''", "a", "A b", "ü", "\U0001f600", "x" * 300, "../../x", "/", "..", "~", "%", "5%", "'5%'",
    "1e9999999%", "'1e9999999%'", "101%", "whitened", "all", "elbo", "ups", "end", "epoch", "mean", "probit", "cuda:99",
    "float32", "0-4", "4-0", "0-99999999999", "[]", "[1,2]", "[[1]]", "[[]]", "[a]", "[null]", "[-1]", "[nan]",
    "['5%']", "['1e9999999%']", "[1e9999999]", "[{a:1}]", "['']", "[0-4]", "[0,[1]]", "[99999999999999999999]", "{}",
    "{a:1}", "{a:{b:1}}", "{1:2}", "{a:[1]}", "{lengthscale:a}", "{samples:[1]}", "{rows:30}", "{checks:5}",
    "{checks:{y_mean:a}}", "${name}", "${nosuch}", "${oc.env:NOSUCH}", "${", "}", "[", "[1,2", "{a", "'", '"', "a,b",
    "range(3)", "choice(1,2)", "sort(3,1)", "int(3)", "glob(*)", "interval(0,1)", "=", "a=b", "\\", "\\,", "a:b",
    "a b c", "\t", "1,", ",", "(1)", "<>", "#", "!", "*", "@", "`",
)  # fmt: skip
PLAUSIBLE = ("0", "1", "2", "5", "20", "30", "0.1", "1.5", "1e-3", "true", "false", "null", "a", "[]", "[0]", "[1,2]",
             "[0.1,1]", "['50%']", "{}", "whitened", "5%", "0-4", "[[1]]", "{a:1}", "-1", "99999999999999")  # fmt: skip
PREFIXES = ("", "", "", "", "", "", "+", "++", "~")


@cache
def sections() -> list[list[str]]:
    """All settings of a run, by the first part of their names; with some that are none."""

    def names(node: dict, prefix: str) -> Iterator[str]:
        for name, value in {**node, "nosuch": None}.items():
            yield prefix + str(name)
            if isinstance(value, dict):
                yield from names(value, f"{prefix}{name}.")

    config = asdict(compose(BASE))
    found = [[name, *(names(value, f"{name}.") if isinstance(value, dict) else [])] for name, value in config.items()]
    kept = [[key for key in section if key not in LEFT_ALONE] for section in found]
    return [*filter(None, kept), list(SHORT)]


def typed(chance: random.Random) -> list[str]:
    """One to three overrides of single settings; or a selection of a config group; or what no key can be."""
    value = chance.choice(PLAUSIBLE if chance.random() < 0.5 else VALUES)
    if chance.random() < 0.1:
        chosen = chance.choice(NAMED) if chance.random() < 0.4 else value
        selection = f"{chance.choice(PREFIXES)}{chance.choice(GROUPS)}={chosen}"
        return [chance.choice(NO_KEYS) if chance.random() < 0.2 else selection]
    key, prefix = chance.choice(chance.choice(sections())), chance.choice(PREFIXES)
    if chance.random() < 0.03:
        key = key[:-1] + chance.choice("xyz.")
    bare = prefix == "~" and chance.random() < 0.8
    word = prefix + key if bare else f"{prefix}{key}={value}"
    return [word, *(typed(chance)[:2] if chance.random() < 0.4 else [])]
