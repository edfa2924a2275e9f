"""Names and looks."""

import itertools
from pathlib import Path

import matplotlib.colors
import pytest

from dlmexp import catalogue as conf
from dlmexp.errors import UserError
from dlmexp.figures import style


def test_every_method_has_a_look_and_the_papers_name() -> None:
    assert set(style.METHODS) == set(conf.methods())
    assert [look.label for look in style.METHODS.values()] == [
        "ELBO", "β-ELBO", "FITC", "joint DLM", "fixed DLM", "joint sq-DLM", "fixed sq-DLM",
        "PPGPR (joint DLM, β = 1)",
    ]  # fmt: skip


def test_methods_can_be_told_apart_without_colour() -> None:
    looks = list(style.METHODS.values())
    assert len({look.marker for look in looks}) == len(looks)
    assert len({look.colour for look in looks}) == len(looks)


def test_estimators_can_be_told_apart_without_colour() -> None:
    looks = [style.of_estimator(name, samples) for name in style.ESTIMATORS for samples in (1, 10, 100)]
    assert len({(look.marker, look.fill) for look in looks}) == len(looks)


def test_methods_and_estimators_share_neither_colour_nor_marker() -> None:
    """A figure may show both: then a symbol must not mean two things."""
    estimators = [style.of_estimator(name, samples) for name in style.ESTIMATORS for samples in (1, 10, 100)]
    estimators.append(style.of_estimator("exact", None))
    methods = [*style.METHODS.values(), style.of_method("my_objective")]
    assert not {look.marker for look in estimators} & {look.marker for look in methods}
    assert not {look.colour for look in estimators} & {look.colour for look in methods}


def test_dashes_and_fill_are_left_to_beta() -> None:
    assert {(look.dashes, look.fill) for look in style.METHODS.values()} == {("-", "full")}
    betas = [style.at_beta(style.of_method("joint_log_dlm"), beta) for beta in (0.1, 1.0, 10.0)]
    assert len({look.dashes for look in betas}) == len({look.fill for look in betas}) == 3


def test_the_elbo_is_black_and_the_beta_elbo_blue_also_where_each_line_has_a_beta() -> None:
    assert style.of_method_by_beta("beta_elbo", 1.0) == style.of_method("elbo")
    assert style.of_method_by_beta("beta_elbo", 0.1) == style.of_method("beta_elbo")


@pytest.mark.parametrize("estimator", style.ESTIMATORS)
def test_more_samples_are_darker_in_grey(estimator: str) -> None:
    def lightness(colour: str) -> float:
        red, green, blue = matplotlib.colors.to_rgb(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = [lightness(style.of_estimator(estimator, samples).colour) for samples in (1, 10, 100)]
    assert all(lighter > darker + 0.1 for lighter, darker in itertools.pairwise(shades))


def test_labels_of_estimators() -> None:
    assert style.of_estimator("exact", None).label == "exact"
    assert style.of_estimator("bmc", 10).label == "bMC-10"
    assert style.of_estimator("ups", 1).label == "uPS-1"
    assert style.of_estimator("smooth_bmc", 100).label == "smooth-bMC-100"


def test_beta_and_folder_keep_colour_and_marker() -> None:
    look = style.of_method("joint_log_dlm")
    for changed in (style.at_beta(look, 0.1), style.in_folder(look, 1, "other")):
        assert (changed.colour, changed.marker) == (look.colour, look.marker)
        assert changed.dashes != look.dashes


def test_a_users_own_method_is_drawn_under_its_own_name() -> None:
    assert style.of_method("my_objective").label == "my objective"


def test_style_file_fits_the_column() -> None:
    with style.use():
        assert matplotlib.rcParams["font.size"] == 7
        assert matplotlib.rcParams["pdf.fonttype"] == 42
    assert matplotlib.rcParams["font.size"] == 10


def test_text_by_latex_needs_latex(tmp_path: Path, monkeypatch) -> None:
    own = tmp_path / "own.mplstyle"
    own.write_text("text.usetex: True\n")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="there is no 'latex' here"):
        style.check_page(style.Page(style=str(own)))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    style.check_page(style.Page(style=str(own)))
