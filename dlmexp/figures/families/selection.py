"""The paper's figure 1: nine panels out of the other figures."""

from dlmexp.figures.families import airline, classification, counts, gradients, regression
from dlmexp.figures.panels import Figure

FAMILY = (
    Figure(
        "selection",
        (
            # The experiment reg-sq computes what the first panel needs as well.
            regression.nll_vs_n("sarcos", "reg-sq"),
            regression.mse_vs_n("sarcos"),
            regression.nll_vs_beta("cadata", "5%"),
            classification.against_n("ringnorm", "nll", "class-log"),
            counts.against_n("peds1_dir2", "nll", "count-log"),
            airline.by_epoch("nll", airline.METHODS, "airline"),
            gradients.histogram("bmc", "error"),
            gradients.histogram("ups", "error"),
            airline.by_epoch("nll", airline.sampling(0.1), "airline-sampling-0.1"),
        ),
        columns=3,
        caption="The paper's figure 1: final test loss against n and β, learning curves of ELBO and DLM, error of "
        "sampled gradients, and joint DLM at β = 0.1 with exact and sampled gradients.",
        of_paper="fig:selection (figure 1)",
    ),
)
