"""Records made with different settings are not mixed."""

from msgspec.structs import replace

from dlmexp.catalogue import beta_rule
from dlmexp.plan.cell import Cell
from dlmexp.records.selection import Choice
from dlmexp.records.settings import same_settings
from tests.support.made_up import cell, fit


def choice(of: Cell, nll: float = 0.1, betas: str = "1", also: tuple[float, ...] = ()) -> Choice:
    records = [fit(replace(of, beta=beta), nll=nll) for beta in (of.beta or 1.0, *also)]
    return Choice("elbo", betas, tuple(records), 0)


def test_one_way_of_training_is_kept_whole() -> None:
    several = [choice(cell(n=n, seed=seed, M=min(50, n))) for n in (20, 100) for seed in range(3)]
    assert same_settings(several, "1") == (several, [])


def test_the_settings_with_most_records_are_kept_and_the_rest_is_said() -> None:
    usual = [choice(cell(seed=seed)) for seed in range(3)]
    other = [choice(replace(cell(seed=seed), kernel="matern52")) for seed in range(2)]
    kept, notes = same_settings(usual + other, "1")
    assert kept == usual
    assert notes == ["2 cells with kernel=matern52 are not drawn (--by kernel=matern52 draws them)"]


def test_another_number_of_inducing_points_is_settled_size_by_size() -> None:
    usual = [choice(cell(n=n, seed=seed, M=min(n, 50))) for n in (20, 100) for seed in range(3)]
    kept, (note,) = same_settings([*usual, choice(cell(n=100, seed=0, M=80))], "1")
    assert kept == usual
    assert "M=80" in note


def test_other_data_under_the_same_name_is_not_mixed_in() -> None:
    usual = [choice(cell(seed=s)) for s in range(3)]
    kept, (note,) = same_settings([*usual, choice(cell(data="changed"), 9.0)], "1")
    assert kept == usual
    assert "data=changed" in note


def test_an_option_of_the_estimator_is_a_setting_under_its_own_name() -> None:
    usual = [choice(cell(seed=s, estimator="ups", samples=10)) for s in range(3)]
    other = [choice(cell(seed=s, estimator="ups", samples=10, sampler="rejection")) for s in range(2)]
    kept, notes = same_settings(other + usual, "1")
    assert kept == usual
    assert notes == ["2 cells with sampler=rejection are not drawn (--by sampler=rejection draws them)"]


def test_of_several_grids_the_preferred_one_is_used_and_the_others_are_named() -> None:
    paper = beta_rule("paper")
    preferred = [choice(cell(beta=100.0), betas=paper, also=(50.0, 25.0))]
    other = [choice(cell(seed=s, beta=100.0), betas="100, 10", also=(10.0,)) for s in range(4)]
    kept, notes = same_settings(preferred + other, paper)
    assert kept == preferred
    assert notes == [
        "beta is selected from 'n, n/2, ... >= 0.01'; selections from other betas are left out: 4 from '100, 10'"
    ]


def test_without_the_preferred_grid_it_is_the_one_with_most_selections() -> None:
    few = [choice(cell(seed=9, beta=100.0), betas="100, 50", also=(50.0,))]
    many = [choice(cell(seed=s, beta=100.0), betas="100, 10", also=(10.0,)) for s in range(4)]
    kept, (note,) = same_settings(few + many, beta_rule("paper"))
    assert kept == many
    assert note.startswith("beta is selected from '100, 10'")
    assert "1 from '100, 50'" in note


def test_a_grid_of_ones_own_is_used_without_a_word_where_it_is_the_only_one() -> None:
    several = [choice(cell(seed=s, beta=100.0), betas="100, 10", also=(10.0,)) for s in range(2)]
    assert same_settings(several, beta_rule("paper")) == (several, [])
