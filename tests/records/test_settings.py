"""Records made with different settings are not mixed."""

from dataclasses import replace

from dlmexp.records.settings import one_protocol
from tests.support.made_up import cell, fit


def test_one_way_of_training_is_kept_whole() -> None:
    records = [fit(cell(n=n, seed=seed, M=min(50, n)), nll=0.1) for n in (20, 100) for seed in range(3)]
    kept, note = one_protocol(records)
    assert kept == records
    assert note == ""


def test_the_settings_with_most_records_are_kept_and_the_rest_is_said() -> None:
    usual = [fit(cell(seed=seed), nll=0.1) for seed in range(3)]
    other = [fit(replace(cell(seed=seed), kernel="matern52"), nll=0.2) for seed in range(2)]
    kept, note = one_protocol(usual + other)
    assert kept == usual
    assert note == "2 cells with kernel=matern52 are not drawn (--by kernel=matern52 draws them)"


def test_another_number_of_inducing_points_is_settled_size_by_size() -> None:
    usual = [fit(cell(n=n, seed=seed, M=min(n, 50)), nll=0.1) for n in (20, 100) for seed in range(3)]
    more = [fit(cell(n=100, seed=0, M=80), nll=0.1)]
    kept, note = one_protocol(usual + more)
    assert kept == usual
    assert "M=80" in note


def test_other_data_under_the_same_name_is_not_mixed_in() -> None:
    kept, note = one_protocol([fit(cell(seed=s), nll=0.1) for s in range(3)] + [fit(cell(data="changed"), nll=9.0)])
    assert len(kept) == 3
    assert "data=changed" in note
