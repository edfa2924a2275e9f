"""Means over repetitions and how sure they are, the effects that make up "DLM - ELBO", and the NLL
of the truth where data is drawn from a definition.

ELBO and joint DLM differ in two ways: the objective (log loss in place of the ELBO's term) and the
choice of beta (1 or selected). Beta-ELBO and PPGPR, the joint DLM with beta = 1, change one of them
each. There are two orders in which to change both; an effect is the mean over them, so that both
effects add up to the whole, in every repetition. Beside that: by how much the whole changes if q is
trained in unwhitened coordinates, or with a floor under the noise."""

import re
from typing import Any

import numpy as np
import pandas as pd

# Expected log loss of the true class probabilities in nats per row, where data is drawn from its
# definition; by quadrature over the log odds of a row's own class: N(8, 16) for twonorm, a shifted
# chi-square for ringnorm.
BAYES_NLL = {"ringnorm_drawn": 0.0352338515653, "twonorm_drawn": 0.0604269868231}
# Of Student's t with 1, 2, ... degrees of freedom, at 0.975: SciPy, which has them all, takes a
# while to load.
QUANTILES = np.array([
    12.706204736174694, 4.302652729749462, 3.1824463052837078, 2.7764451051977934, 2.5705818356363146,
    2.4469118511449786, 2.364624251592784, 2.306004135204166, 2.262157162798205, 2.228138851986274, 2.200985160091639,
    2.1788128296672284, 2.1603686564627913, 2.144786687917804, 2.131449545559776, 2.1199052992212546,
    2.1098155778333156, 2.1009220402410382, 2.0930240544083087,
])  # fmt: skip
EFFECT_METHODS = {"E": "elbo", "B": "beta_elbo", "F": "fitc", "P": "ppgpr", "D": "joint_log_dlm"}
# Effect -> formula of its bar (`effect`), then of its marks; u: q unwhitened, f: with a floor under
# the noise.
EFFECTS = {
    "whole": {"effect": "D - E"},
    "beta": {"effect": "(B - E + D - P) / 2", "elbo": "B - E", "joint_log_dlm": "D - P"},
    "objective": {"effect": "(P - E + D - B) / 2", "ppgpr": "P - E", "beta_elbo": "D - B"},
    "coordinates": {"effect": "Du - Eu - (D - E)", "elbo": "Eu - E", "joint_log_dlm": "Du - D"},
    "noise": {"effect": "Df - Ef - (D - E)", "elbo": "Ef - E", "joint_log_dlm": "Df - D"},
    "fitc": {"effect": "F - E"},
}


def statistics(x: Any, values: np.ndarray, attempted: Any, median: bool = False) -> pd.DataFrame:
    """A row per x: mean, sample deviation and standard error (or median and quartiles) of the
    finite `values`.

    Args:
        x: `[P]`.
        values: `[R, P]`, a row per repetition; NaN where it failed or was not run.
        attempted: Repetitions that were run, `[P]` or a number.
        median: Median and quartiles in place of mean, std, sem.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    count = np.isfinite(values).sum(axis=0)
    if median:
        low, middle, high = pd.DataFrame(values).quantile([0.25, 0.5, 0.75]).to_numpy()
        about = {"median": middle, "q25": low, "q75": high}
    else:
        with np.errstate(invalid="ignore"):  # 0 / 0 where there is nothing, or no deviation
            mean = np.nansum(values, axis=0) / count
            std = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(count - 1, 0))
            about = {"mean": mean, "std": std, "sem": std / np.sqrt(count)}
    return pd.DataFrame({"x": x, **about, "repetitions": count, "failed": attempted - count})


def half_width(points: pd.DataFrame) -> np.ndarray:
    """Half the 95 % interval (Student's t) around the mean of each point, `[P]`; NaN from a single
    repetition."""
    sem, freedom = points["sem"].to_numpy(), np.maximum(points["repetitions"].to_numpy() - 1, 1)
    if freedom.max(initial=1) <= len(QUANTILES):
        return sem * QUANTILES[freedom - 1]
    from scipy.special import stdtrit

    return sem * stdtrit(freedom, 0.975)


def measure_effect(name: str, rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The points of an effect from rows of one setting and size: a row for the bar, then for each
    mark. A part that compares a way to train without rows is left out; without the bar there is
    nothing."""
    parts: list[pd.DataFrame] = []
    for part, formula in EFFECTS[name].items():
        ways = {way: _by_way(rows, way, metric) for way in re.findall(r"[A-Z][uf]?", formula)}
        if all(len(values) for values in ways.values()) and (parts or part == "effect"):
            values = pd.concat(ways, axis="columns", join="inner").eval(formula).to_numpy()
            point = statistics([len(parts)], values[:, None], len(values))
            half = half_width(point)
            parts.append(
                point.assign(
                    low=point["mean"] - half, high=point["mean"] + half, effect=name, part=part
                )
            )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _by_way(rows: pd.DataFrame, way: str, metric: str) -> pd.Series:
    """Test metric by seed at the selected beta; NaN where all candidates failed. A closed form over
    q knows no coordinates, so it serves for all."""
    fits = (rows["method"] == EFFECT_METHODS[way[0]]) & (
        rows["noise_floor"].notna() == way.endswith("f")
    )
    how = rows["parameterisation"] == ("unwhitened" if way.endswith("u") else "whitened")
    own = (
        rows[fits & (how | (rows["form"] == "collapsed"))].drop_duplicates("seed").set_index("seed")
    )
    return own[f"test_{metric}"].astype(float).where(own["status"] == "done")
