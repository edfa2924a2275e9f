"""Claims that compare methods.

Claims 1 to 5 and 32 are about regression, 7 to 10, 28 and 31 about classification and counts, and
21 to 23 about all datasets.

The decorator `claim` takes the number of a claim, its place in the paper, and the experiments that
compute its records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import DLM, Evidence, MetricLine
from dlmexp.presentation.claims.rules import BETTER, COMPARABLE, NO_WORSE, Relation
from dlmexp.presentation.labels import method_label, metric_label

# The methods that are not trained on square loss, and all methods.
LOG_METHODS = ("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
ALL_METHODS = (*LOG_METHODS, "joint_sq_dlm", "fixed_sq_dlm")
BASELINES = ("elbo", "beta_elbo")
BASELINES_IN_WORDS = "ELBO and β-ELBO"


def compare_with_rivals(
    evidence: Evidence,
    datasets: Sequence[str],
    method: str,
    rivals: Sequence[str],
    metric: str,
    relation: Relation,
    predicate: str,
) -> Iterator[Part]:
    """Yield a part for each dataset, stand-in and parameterisation of q.

    Args:
        evidence: The records.
        datasets: The datasets that the claim names.
        method: The method that the claim is about.
        rivals: The methods to compare it with. The method itself may be in this list; it is left
            out.
        metric: The metric.
        relation: The relation of the method to the rivals that is tested.
        predicate: The statement without its subject, the method.
    """
    statement = f"{method_label(method)} {predicate}"
    rivals = [rival for rival in rivals if rival != method]
    for dataset, q in evidence.datasets_and_q(*datasets):
        ours = evidence.fit(dataset, method, metric, q)
        pairs = [(ours, evidence.fit(dataset, rival, metric, q)) for rival in rivals]
        yield evidence.compare(statement, dataset, q, pairs, relation, within=metric)


def has_lowest(
    evidence: Evidence, method: str, metric: str, datasets: Sequence[str]
) -> Iterator[Part]:
    """Yield tests of whether a method has the lowest value of a metric.

    Methods of square loss are rivals in MSE only.
    """
    rivals = LOG_METHODS if metric == "nll" else ALL_METHODS
    predicate = f"has the lowest {metric_label(metric)}"
    return compare_with_rivals(evidence, datasets, method, rivals, metric, BETTER, predicate)


def beats(evidence: Evidence, method: str, rival: str, metric: str, dataset: str) -> Iterator[Part]:
    """Yield tests of whether a method has a lower value of a metric than a rival."""
    predicate = f"beats {method_label(rival)} in {metric_label(metric)}"
    return compare_with_rivals(evidence, [dataset], method, [rival], metric, BETTER, predicate)


@claim(
    1,
    "section 6.2, figure 1(a); supplement A",
    "reg-log",
    text="pol, sarcos, song: joint log-DLM has the lowest NLL.",
)
def joint_log_lowest(evidence: Evidence) -> Iterator[Part]:
    """Compare joint log-DLM with all methods trained on log loss."""
    yield from has_lowest(
        evidence, "joint_log_dlm", metric="nll", datasets=("pol", "sarcos", "song")
    )


@claim(2, "supplement A", "reg-log", text="cadata: fixed log-DLM has the lowest NLL.")
def fixed_log_lowest(evidence: Evidence) -> Iterator[Part]:
    """Compare fixed log-DLM with all methods trained on log loss."""
    yield from has_lowest(evidence, "fixed_log_dlm", metric="nll", datasets=("cadata",))


@claim(
    3,
    "supplement A",
    "reg-sq",
    text="MSE: joint sq-DLM is lowest on pol, sarcos, song; fixed sq-DLM on cadata.",
)
def square_lowest(evidence: Evidence) -> Iterator[Part]:
    """Compare sq-DLM with all methods."""
    yield from has_lowest(
        evidence, "joint_sq_dlm", metric="mse", datasets=("pol", "sarcos", "song")
    )
    yield from has_lowest(evidence, "fixed_sq_dlm", metric="mse", datasets=("cadata",))


@claim(
    32,
    "section 6.2, figure 1(b)",
    "reg-sq",
    text="sarcos: joint sq-DLM beats all methods that are not trained by square loss in MSE.",
)
def square_beats_all(evidence: Evidence) -> Iterator[Part]:
    """Compare joint sq-DLM with every method trained on log loss."""
    predicate = f"beats all methods of log loss in {metric_label('mse')}"
    yield from compare_with_rivals(
        evidence, ["sarcos"], "joint_sq_dlm", LOG_METHODS, "mse", BETTER, predicate
    )


@claim(4, "section 6.2, figure 1(b)", "reg-sq", text="sarcos: sq-DLM beats log-DLM in MSE.")
def square_beats_log(evidence: Evidence) -> Iterator[Part]:
    """Compare sq-DLM with log-DLM of the same variant."""
    yield from beats(
        evidence, "joint_sq_dlm", rival="joint_log_dlm", metric="mse", dataset="sarcos"
    )
    yield from beats(
        evidence, "fixed_sq_dlm", rival="fixed_log_dlm", metric="mse", dataset="sarcos"
    )


@claim(
    5,
    "section 6.2, figure 1(a, b)",
    "reg-log",
    "reg-sq",
    text="sarcos: β-ELBO beats ELBO in NLL and MSE.",
)
def beta_beats_plain(evidence: Evidence) -> Iterator[Part]:
    """Compare β-ELBO with ELBO in both metrics."""
    yield from beats(evidence, "beta_elbo", rival="elbo", metric="nll", dataset="sarcos")
    yield from beats(evidence, "beta_elbo", rival="elbo", metric="mse", dataset="sarcos")


@claim(
    7,
    "section 6.2, figure 1(d); supplement A",
    "class-log",
    text="ringnorm: DLM beats ELBO in NLL; on the other three binary datasets they are comparable.",
)
def ringnorm_and_others(evidence: Evidence) -> Iterator[Part]:
    """Compare both DLMs with ELBO on ringnorm, and with both baselines on the other datasets."""
    other_datasets = ("banana", "thyroid", "twonorm")
    predicate = f"is comparable to {BASELINES_IN_WORDS} in NLL"
    for method in DLM:
        yield from beats(evidence, method, rival="elbo", metric="nll", dataset="ringnorm")
        yield from compare_with_rivals(
            evidence, other_datasets, method, BASELINES, "nll", COMPARABLE, predicate
        )


@claim(
    8,
    "section 6.2; supplement A",
    "class-err",
    "count-mre",
    text="DLM does not lose in error rate or MRE.",
)
def no_loss(evidence: Evidence) -> Iterator[Part]:
    """Compare both DLMs with both baselines, in the metric of each task."""
    for metric, datasets in (("error", BINARY), ("mre", COUNTS)):
        predicate = f"loses no {metric_label(metric)} against {BASELINES_IN_WORDS}"
        for method in DLM:
            yield from compare_with_rivals(
                evidence, datasets, method, BASELINES, metric, NO_WORSE, predicate
            )


@claim(
    9,
    "section 6.2, figure 1(e); supplement A",
    "count-log",
    text=(
        "Counts: joint DLM has the lowest NLL on three of four datasets; on the fourth fixed DLM "
        "is at least as good as ELBO (counted apart)."
    ),
    needs=rules.THREE_OF_FOUR,
)
def counts_lowest(evidence: Evidence) -> Iterator[Part]:
    """Compare joint DLM with all methods, and fixed DLM with ELBO."""
    for dataset, q in evidence.datasets_and_q(*COUNTS):
        joint = evidence.fit(dataset, "joint_log_dlm", "nll", q)
        fixed = evidence.fit(dataset, "fixed_log_dlm", "nll", q)
        elbo = evidence.fit(dataset, "elbo", "nll", q)
        beta_elbo = evidence.fit(dataset, "beta_elbo", "nll", q)
        pairs = [(joint, elbo), (joint, beta_elbo), (joint, fixed)]
        statement = "joint DLM has the lowest NLL"
        yield evidence.compare(statement, dataset, q, pairs, BETTER, within="nll")
        statement = "fixed DLM is at least as good as ELBO"
        part = evidence.compare(statement, dataset, q, [(fixed, elbo)], NO_WORSE, within="nll")
        yield replace(part, supplementary=True)


@claim(
    10,
    "section 6.2, figure 1(f)",
    "airline",
    text="airline: both DLMs beat β-ELBO at every β in {0.1, 1, 10}, and ELBO at β = 1.",
)
def dlm_beats_elbo(evidence: Evidence) -> Iterator[Part]:
    """Compare the ends of learning curves at each beta in NLL."""
    return _dlm_beats_elbo_on_airline(evidence, "nll")


@claim(
    28,
    "supplement A",
    "airline",
    text=(
        "airline: both DLMs have a lower error rate than β-ELBO at every β in {0.1, 1, 10}, and "
        "than ELBO at β = 1."
    ),
)
def dlm_errs_less(evidence: Evidence) -> Iterator[Part]:
    """Compare the ends of learning curves at each beta in error rate."""
    return _dlm_beats_elbo_on_airline(evidence, "error")


def _dlm_beats_elbo_on_airline(evidence: Evidence, metric: str) -> Iterator[Part]:
    """Yield tests of whether a DLM beats beta-ELBO at the same beta, and ELBO.

    At beta = 1, beta-ELBO is ELBO.
    """
    value = f"test_{metric}"
    for dataset, q in evidence.datasets_and_q("airline", kind="curve"):
        elbo = evidence.curve(dataset, "beta_elbo", 1.0, q, value=value)
        for beta in (0.1, 1.0, 10.0):
            if beta == 1.0:
                rivals = [elbo]
                names_of_rivals = "ELBO"
            else:
                rivals = [evidence.curve(dataset, "beta_elbo", beta, q, value=value), elbo]
                names_of_rivals = f"β-ELBO, β={beta:g}, and ELBO"
            for method in DLM:
                ours = evidence.curve(dataset, method, beta, q, value=value)
                statement = f"{ours.name} beats {names_of_rivals} in {metric_label(metric)}"
                pairs = [(ours, rival) for rival in rivals]
                yield evidence.compare(statement, dataset, q, pairs, BETTER, within=metric)


@claim(
    21,
    "section 6.2",
    "reg-log",
    "class-log",
    "count-log",
    text=(
        "Taken together, the better of the two DLM variants is comparable to or better than both "
        "ELBO and β-ELBO on every dataset."
    ),
)
def better_dlm(evidence: Evidence) -> Iterator[Part]:
    """Compare the DLM variant with the lower validation NLL in each repetition with both baselines.

    A user would choose the variant in this way, without looking at test rows.
    """
    statement = (
        "the DLM variant that validation selects is comparable to or better than "
        f"{BASELINES_IN_WORDS} in NLL"
    )
    for dataset, q in evidence.datasets_and_q(*REGRESSION, *BINARY, *COUNTS):
        joint_validation = evidence.fit(dataset, "joint_log_dlm", "nll", q, "validation_nll").values
        fixed_validation = evidence.fit(dataset, "fixed_log_dlm", "nll", q, "validation_nll").values
        both_known = np.isfinite(joint_validation) & np.isfinite(fixed_validation)
        joint_is_selected = joint_validation <= fixed_validation

        joint = evidence.fit(dataset, "joint_log_dlm", "nll", q)
        fixed = evidence.fit(dataset, "fixed_log_dlm", "nll", q)
        selected = np.where(joint_is_selected, joint.values, fixed.values)
        ours = replace(
            joint,
            name="DLM (variant by validation)",
            values=np.where(both_known, selected, np.nan),
            lost=joint.lost + fixed.lost,
        )
        pairs = [(ours, evidence.fit(dataset, name, "nll", q)) for name in BASELINES]
        part = evidence.compare(statement, dataset, q, pairs, NO_WORSE, within="nll")
        if both_known.any():
            part.figures = {"joint_selected": float(joint_is_selected[both_known].mean())}
        yield part


# Metrics of calibration by dataset. Coverage is judged by its distance from the nominal level.
CALIBRATION_METRICS = {
    REGRESSION: ("coverage_50", "coverage_90", "coverage_95", "crps"),
    BINARY: ("ece", "brier"),
    COUNTS: ("coverage_95",),
}
# Metrics whose margin is computed from the ELBO's values. Other metrics of calibration have a
# constant margin: even a trivial predictor has values near 0, so that the ELBO explains nothing.
METRICS_WITH_COMPUTED_MARGIN = ("crps", "brier")


@claim(
    22,
    "section 6.2; supplement A",
    "reg-log",
    "class-log",
    "count-log",
    text=(
        "DLM is better calibrated than ELBO: coverage and CRPS in regression (our addition), ECE "
        "and Brier score in binary, coverage in counts (said in the paper, not measured there)."
    ),
    figures=("calibration-reg", "calibration-class", "calibration-count"),
)
def better_calibrated(evidence: Evidence) -> Iterator[Part]:
    """Compare each DLM, with the beta that NLL selects, with ELBO in every metric."""
    for datasets, metrics in CALIBRATION_METRICS.items():
        for dataset, q in evidence.datasets_and_q(*datasets):
            for metric in metrics:
                for method in DLM:
                    yield _calibrated(evidence, dataset, q, metric, method)


def _calibrated(evidence: Evidence, dataset: str, q: str, metric: str, method: str) -> Part:
    """Return tests of whether a method has a lower value of a metric of calibration than ELBO."""
    is_coverage = metric.startswith("coverage")
    if is_coverage:
        level = int(metric.removeprefix("coverage_")) / 100
        label = f"coverage error at {level:.0%}"
    else:
        level = 0.0  # other metrics are at least 0, which is their best value
        label = metric_label(metric)
    margin = metric if metric in METRICS_WITH_COMPUTED_MARGIN else rules.PROBABILITY_MARGIN

    # Beta is selected by NLL for all of these metrics.
    ours = evidence.fit(dataset, method, "nll", q, value=f"test_{metric}")
    elbo = evidence.fit(dataset, "elbo", "nll", q, value=f"test_{metric}")
    pairs = [(_distance_from(level, ours), _distance_from(level, elbo))]
    statement = f"{ours.name} has a lower {label} than ELBO"
    part = evidence.compare(statement, dataset, q, pairs, BETTER, within=margin)
    if part.tests and is_coverage:
        error = float(np.nanmean(ours.values)) - level
        error_elbo = float(np.nanmean(elbo.values)) - level
        part.figures = {"signed_error": error, "signed_error_elbo": error_elbo}
        means = f"coverage minus nominal, mean over sizes: {error:+.3f}, ELBO {error_elbo:+.3f}"
        part.reason = f"{means}; {part.reason}" if part.reason else means
    return part


def _distance_from(level: float, line: MetricLine) -> MetricLine:
    """Return a line with the distances of its values from a level."""
    return replace(line, values=abs(line.values - level))


@claim(
    23,
    "section 6.1; section 6.2; supplement A",
    "reg-log",
    "class-log",
    "count-log",
    text="Joint DLM is not stable in some cases: there fixed DLM has the lower NLL.",
    needs=rules.SOME,
)
def joint_is_unstable(evidence: Evidence) -> Iterator[Part]:
    """Compare fixed with joint DLM, which differ in how the hyperparameters are trained."""
    statement = "fixed DLM beats joint DLM in NLL"
    for dataset, q in evidence.datasets_and_q(*REGRESSION, *BINARY, *COUNTS):
        fixed = evidence.fit(dataset, "fixed_log_dlm", "nll", q)
        joint = evidence.fit(dataset, "joint_log_dlm", "nll", q)
        yield evidence.compare(statement, dataset, q, [(fixed, joint)], BETTER, within="nll")


@claim(
    31,
    "supplement A",
    "zero-mean",
    text="Some binary datasets need a constant mean: with a zero mean ELBO has a higher NLL.",
    needs=rules.SOME,
    figures=(),
)
def constant_mean(evidence: Evidence) -> Iterator[Part]:
    """Compare ELBO with a constant and with a zero mean (experiment `zero-mean`)."""
    statement = "a constant mean beats a zero mean in NLL"
    nll = evidence.column("test_nll")
    for dataset, q in evidence.datasets_and_q(*BINARY):
        rows_with_constant = evidence.at("nll", dataset, q, "elbo", estimator="exact", samples=None)
        rows_with_zero = evidence.at(
            "zero-mean", dataset, q, "elbo", estimator="exact", samples=None
        )
        constant = evidence.line("ELBO, constant mean", dataset, rows_with_constant, nll)
        zero = evidence.line("ELBO, zero mean", dataset, rows_with_zero, nll)
        yield evidence.compare(statement, dataset, q, [(constant, zero)], BETTER, within="nll")
