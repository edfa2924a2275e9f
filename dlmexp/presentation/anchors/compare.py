"""Compare published numbers with those of a results folder.

Each published number is a mean over splits of a data set. Our number is the mean of those results
whose settings are closest to the published ones: kernel, inducing inputs, training rows, alpha of
power EP, and how the model was trained. The difference is measured in standard errors.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.table import as_text, rows_for
from dlmexp.presentation.anchors.published import (
    ADAM_SETTINGS,
    ADAM_SOURCE,
    ALPHAS,
    PublishedNumber,
    published_numbers,
)
from dlmexp.presentation.labels import method_label

MET_WITHIN = 2.0  # a number is met if ours is within this many standard errors of it
# The roles of results that are not fits, and so are not compared with published numbers.
ROLES_WITHOUT_FITS = ("curve", "gradient", "timing")
# Results with equal values in these columns have the same setting, and are averaged over splits.
SETTING_COLUMNS = ("kernel", "ard", "M", "n", "protocol", "changes", "parameterisation")
HIGHER_IS_BETTER = ("test_log_likelihood",)
# Metrics of which neither lower nor higher values are better.
UNORDERED_METRICS = ("noise_std",)
# The published objectives are twice the negative bound per row, as a comparison shows: with this
# factor, SGPR with M = 256 has 0.89 by `scripts.benchmark table1`, and 0.88 in print.
OBJECTIVE_FACTOR = 2.0
Values = Float[np.ndarray, " S"]  # values of ours, by split


class AnchorVerdict(StrEnum):
    """How our number compares with a published one.

    `SETTINGS` means that ours is worse under other settings, or that the targets differ.
    """

    MET = "met"
    BETTER = "better"
    WORSE = "worse"
    SETTINGS = "settings differ"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Anchor:
    """The comparison of a published number with ours.

    Attributes:
        source: Where the number was published.
        dataset: Our name of the data set.
        method: The name of the method in the source.
        counterpart: The method of ours that is compared with it.
        M: The number of inducing inputs; None where the source does not say.
        metric: The metric.
        value: The published number.
        error: Its standard error; NaN where none was published.
        ours: Our mean over splits; NaN where nothing was run.
        our_error: The standard error of our mean.
        splits: The number of our splits.
        difference: Ours minus the published number, in standard errors of the difference.
        verdict: Whether the published number is met.
        why: The reasons for the verdict, such as settings that differ.
    """

    source: str
    dataset: str
    method: str
    counterpart: str
    M: int | None
    metric: str
    value: float
    error: float
    ours: float
    our_error: float
    splits: int
    difference: float
    verdict: AnchorVerdict
    why: str


@dataclass(frozen=True, eq=False)
class OurResults:
    """Our results of one setting, to be compared with a published number.

    Attributes:
        rows: The results, with a row per split; empty where nothing was run.
        differences: The differences of the setting from the published one, in words.
    """

    rows: pd.DataFrame
    differences: list[str]

    @property
    def distance(self) -> tuple[int, int]:
        """A sort key for how far the setting is from the published one.

        Of settings with as many differences, the one with the most splits is the closest.
        """
        return len(self.differences), -len(self.rows)


def anchors(results: ResultsFolder) -> list[Anchor]:
    """Return the comparison of each published number with ours.

    Raises:
        UserError: The folder has no result on a data set of the published numbers.
    """
    table = as_text(results.table)
    is_result = ~table["role"].isin(ROLES_WITHOUT_FITS) & (table["status"] == "done")
    table = table[is_result]
    numbers = published_numbers()
    datasets = {number.dataset for number in numbers}
    if not table["dataset"].isin(datasets).any():
        raise UserError(
            f"'{results.root}' has no results on data of published numbers, which are "
            f"{', '.join(sorted(datasets))}"
        )
    return [_anchor(number, table) for number in numbers]


def _anchor(number: PublishedNumber, table: pd.DataFrame) -> Anchor:
    """Compare a published number with the closest results of a table."""
    closest = _closest_results(number, table)
    values_on_splits = _values(number, closest.rows)
    values = values_on_splits[np.isfinite(values_on_splits)]
    mean = float(values.mean()) if len(values) else math.nan
    our_error = _standard_error(values)
    difference = _difference(number, mean, our_error)
    verdict = _verdict(number.metric, difference, settings_differ=bool(closest.differences))
    if verdict is not AnchorVerdict.NOT_RUN and number.other_target_text:
        difference = math.nan  # numbers of different targets cannot be compared
        verdict = AnchorVerdict.SETTINGS
    return Anchor(
        source=number.source,
        dataset=number.dataset,
        method=number.method,
        counterpart=number.counterpart,
        M=number.M,
        metric=number.metric,
        value=number.value,
        error=number.error,
        ours=mean,
        our_error=our_error,
        splits=len(values),
        difference=difference,
        verdict=verdict,
        why=_why(number, closest, splits=len(values)),
    )


def _closest_results(number: PublishedNumber, table: pd.DataFrame) -> OurResults:
    """Return our results in the setting that differs least from that of a published number."""
    is_on_dataset = table["dataset"] == number.dataset
    is_of_method = table["method"] == number.counterpart
    results = table[is_on_dataset & is_of_method]
    if results.empty:
        return OurResults(results, differences=[])
    selected_by = "mse" if number.metric == "test_rmse" else "nll"
    fits = rows_for(results, selected_by)
    setting_columns = [name for name in SETTING_COLUMNS if name in fits]
    by_setting: dict[str, OurResults] = {}
    for values, rows in fits.groupby(setting_columns, dropna=False, sort=True):
        differences = _differences_in_settings(number, rows.iloc[0])
        # Rows with the same seed differ in other columns, such as the estimator or the candidates.
        # The first of them is kept.
        by_setting[str(values)] = OurResults(rows.drop_duplicates("seed"), differences)
    # Of equally close settings, the first one by name is taken, which is the same everywhere.
    closest = min(by_setting, key=lambda setting: (*by_setting[setting].distance, setting))
    return by_setting[closest]


def _differences_in_settings(number: PublishedNumber, result: pd.Series) -> list[str]:
    """Return the differences between the settings of a result and of a number, in words."""
    differences = (
        _other_kernel(number, result),
        _other_inducing(number, result),
        _other_rows(number, result),
        _other_alpha(number, result),
        _other_training(number, result),
        _other_data(number),
    )
    return [difference for difference in differences if difference]


# Each of these functions returns a difference from the published setting in words: `ours for
# theirs`. It is '' where the setting is the same, or the source does not say what it is.


def _other_kernel(number: PublishedNumber, result: pd.Series) -> str:
    kernel = str(result["kernel"])
    has_ard = result.get("ard")
    if has_ard is True or has_ard == 1:  # NaN, which is true in Python, means that it is not known
        kernel += " ard"
    if number.kernel is None or kernel == number.kernel:
        return ""
    return f"kernel {kernel} for {number.kernel}"


def _other_inducing(number: PublishedNumber, result: pd.Series) -> str:
    if number.M is None or number.is_exact or int(result["M"]) == number.M:
        return ""
    return f"M {int(result['M'])} for {number.M}"


def _other_rows(number: PublishedNumber, result: pd.Series) -> str:
    if number.rows is None or int(result["n"]) == number.rows:
        return ""
    return f"{int(result['n'])} rows for {number.rows}"


def _other_alpha(number: PublishedNumber, result: pd.Series) -> str:
    alpha = ALPHAS.get(number.method)
    # The alpha of power EP is the beta of our counterpart.
    if alpha is None or result["beta"] == alpha:
        return ""
    return f"alpha {result['beta']:g} for {alpha:g}"


def _other_training(number: PublishedNumber, result: pd.Series) -> str:
    if number.is_exact or not number.source.startswith(ADAM_SOURCE):
        return ""
    if all(result.get(name) == value for name, value in ADAM_SETTINGS.items()):
        return ""
    return "trained otherwise (theirs: 10000 Adam steps, lr 0.01, batches of 512)"


def _other_data(number: PublishedNumber) -> str:
    if not number.has_other_splits:
        return ""
    # Another target, if there is one, matters more than other splits.
    return number.other_target_text or "other splits of the same rows"


def _values(number: PublishedNumber, rows: pd.DataFrame) -> Values:
    """Return our values of the number's metric on every split, in the units of the number."""
    if rows.empty:
        return np.empty(0)
    scale = np.ones(len(rows))
    if number.is_in_target_units:
        scale = rows["y_std"].to_numpy(float)
    if number.metric == "objective_per_row":
        return OBJECTIVE_FACTOR * rows["objective_value"].to_numpy(float)
    if number.metric == "noise_std":
        return np.sqrt(rows["hyper_noise"].to_numpy(float))
    if number.metric == "test_rmse":
        return np.sqrt(rows["test_mse"].to_numpy(float)) * scale
    # In units of the target, whose standard deviation is s, the density is p / s, and so the NLL is
    # larger by log s.
    nll = rows["test_nll"].to_numpy(float) + np.log(scale)
    return -nll if number.metric == "test_log_likelihood" else nll


def _standard_error(values: Values) -> float:
    """Return the standard error of the mean; NaN with fewer than two values."""
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _difference(number: PublishedNumber, mean: float, our_error: float) -> float:
    """Return ours minus the published number, in standard errors; NaN where nothing was run.

    The variance of the difference has three terms: the variance of our mean, that of the published
    number (if it was not published, ours is taken for it), and that of rounding in print.
    """
    if math.isnan(mean):
        return math.nan
    variance = 0.0
    # With a single split, our error is not known and adds nothing.
    if not math.isnan(our_error):
        variance += our_error**2
    their_error = our_error if math.isnan(number.error) else number.error
    if not math.isnan(their_error):
        variance += their_error**2
    # Rounding errors are uniform. The variance of a uniform distribution of width u is u^2 / 12.
    rounding = _rounding_unit(number.value) / math.sqrt(12)
    return (mean - number.value) / math.sqrt(variance + rounding**2)


def _rounding_unit(value: float) -> float:
    """Return the unit of the last decimal of a number, such as 0.001 for 0.614; at most 0.01."""
    decimals = f"{value:.12g}".partition(".")[2]
    return 10.0 ** -max(len(decimals), 2)


def _verdict(metric: str, difference: float, settings_differ: bool) -> AnchorVerdict:
    """Return the verdict on a number from the difference of ours in standard errors.

    If ours is worse and the settings differ, these may be the reason, and the verdict says so.
    """
    if math.isnan(difference):
        return AnchorVerdict.NOT_RUN
    if abs(difference) <= MET_WITHIN:
        return AnchorVerdict.MET
    gain = difference if metric in HIGHER_IS_BETTER else -difference
    if gain > 0 and metric not in UNORDERED_METRICS:
        return AnchorVerdict.BETTER
    return AnchorVerdict.SETTINGS if settings_differ else AnchorVerdict.WORSE


def _why(number: PublishedNumber, closest: OurResults, splits: int) -> str:
    """Return the reasons for a verdict in words.

    Args:
        number: The published number.
        closest: Our results in the closest setting.
        splits: The number of splits on which our value is finite.
    """
    label = method_label(number.counterpart)
    if not splits:
        return f"no result of {label}"
    reasons = []
    if not number.is_same_method:
        reasons.append(f"compared with our {label}, which is another method")
    elif number.M is None and not number.is_exact:
        our_M = int(closest.rows.iloc[0]["M"])
        reasons.append(f"their M is not in print, ours is {our_M}")
    reasons += closest.differences
    if splits != number.splits:
        reasons.append(f"{splits} splits for {number.splits}")
    if math.isnan(number.error):
        reasons.append("no standard error in print: ours is taken for it")
    return "; ".join(reasons)
