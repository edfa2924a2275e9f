"""The data protocol of docs/SPEC.md, section 5, as properties."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.common.errors import UserError
from dlmexp.data import splits
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, Task
from dlmexp.data.splits import Split, normalise_split, prepare, split, split_sizes

rows, kinds, seeds = (
    st.integers(20, 3000),
    st.sampled_from([kind for kind in splits.VALIDATION_PERCENT if kind != "published"]),
    st.integers(0, 2**31),
)


def made_up(n: int, task: Task = "regression") -> Dataset:
    rng = np.random.default_rng(n)
    y = rng.normal(5.0, 3.0, n) if task == "regression" else rng.integers(0, 2, n).astype(float)
    return Dataset(rng.normal(2.0, 4.0, (n, 3)), y, name="made_up", task=task)


def spec(kind: str, task: Task = "regression") -> DatasetConfig:
    return DatasetConfig("made_up", "none", task, split=kind)


def test_the_first_indices_do_not_change():
    # If this fails, every split has changed: increase SPLIT_VERSION.
    assert splits.SPLIT_VERSION == 1
    assert splits.permutation(20640, 0)[:8].tolist() == [
        20554,
        16026,
        6037,
        855,
        921,
        3697,
        12977,
        269,
    ]
    assert splits.permutation(20640, 4)[:8].tolist() == [
        4306,
        9782,
        5907,
        9320,
        17815,
        12615,
        8245,
        9943,
    ]


@given(rows, kinds, seeds, st.none() | st.integers(1, 500), st.data())
@settings(max_examples=50)
def test_parts_are_disjoint_and_training_sets_nested(n, kind, seed, cap, data):
    parts = split(n, kind, seed, cap)
    together = np.concatenate([parts.train, parts.validation, parts.test])
    assert len(np.unique(together)) == len(together) <= n
    assert 0 <= together.min() <= together.max() < n
    assert len(parts.train) > 0 < len(parts.test) <= (cap or n)
    assert cap is not None or len(together) == n
    small, large = sorted(data.draw(st.tuples(*[st.integers(1, len(parts.train))] * 2)))
    few, more = (
        prepare(made_up(n, task="count"), spec(kind, "count"), seed, size).y_train
        for size in (small, large)
    )
    assert np.array_equal(more[:small], few)


@given(st.integers(40, 300), kinds, st.integers(0, 9), st.data())
@settings(max_examples=20)
def test_training_data_does_not_depend_on_held_out_rows_nor_these_on_the_size(n, kind, seed, data):
    dataset, how, parts = made_up(n), spec(kind), split(n, kind, seed)
    size = data.draw(st.integers(2, len(parts.train)))
    X, y, used = np.full_like(dataset.X, 1e9), np.full_like(dataset.y, -1e9), parts.train[:size]
    X[used], y[used] = dataset.X[used], dataset.y[used]
    a, b = (prepare(some, how, seed, size) for some in (dataset, Dataset(X, y, task="regression")))
    assert np.array_equal(a.X_train, b.X_train)
    assert np.array_equal(a.y_train, b.y_train)
    assert (a.y_mean, a.y_std) == (b.y_mean, b.y_std)
    for targets, chosen in ((a.y_val, parts.validation), (a.y_test, parts.test)):
        np.testing.assert_allclose(
            targets * a.y_std + a.y_mean, dataset.y[chosen], rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize(("kind", "n", "cap", "sizes"), [
    ("regression", 20640, None, (13829, 1651, 5160)), ("regression", 515345, 10000, (345281, 41228, 10000)),
    ("counts", 7400, None, (5660, 740, 1000)), ("counts", 100, None, (45, 10, 45)),
])  # fmt: skip
def test_sizes_of_the_parts(kind, n, cap, sizes):
    parts = split(n, kind, 0, cap)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == sizes


@pytest.mark.parametrize(("n", "kind", "cap", "own_test", "sizes"), [
    (1500, "counts", None, 0, (675, 150, 675)),  # half of the rows that are not for validation
    (4000, "counts", None, 0, (2600, 400, 1000)),
    (1500, "regression", None, 0, (1005, 120, 375)),
    (515345, "regression", 10000, 0, (345281, 41228, 10000)),
    (120000, "airline", None, 0, (60000, 0, 60000)),
    pytest.param(2055733, "airline", None, 0, (1955733, 0, 100000), marks=pytest.mark.slow),
    (85, "regression", None, 10, (67, 8, 10)),
    (110, "counts", 5, 10, (90, 10, 5)),
])  # fmt: skip
def test_split_sizes_are_those_of_the_split(n, kind, cap, own_test, sizes):
    parts = split(n, kind, 0, cap, splits.Arrangement(test=own_test))
    assert tuple(map(len, parts)) == sizes
    assert split_sizes(n, kind, cap, own_test) == sizes


def test_split_sizes_refuse_an_unknown_split_and_too_few_rows():
    with pytest.raises(UserError, match="unknown split 'classes'"):
        split_sizes(100, "classes")
    with pytest.raises(UserError, match="19 rows are too few"):
        split_sizes(29, "counts", None, 10)
    assert sum(split_sizes(20, "counts")) == 20


def test_groups_are_refused_by_their_order_in_the_split_not_in_the_file():
    house = splits.Arrangement("group", np.repeat(np.arange(5.0), [5, 5, 5, 5, 40]), "house")
    assert len(split(60, "regression", 0, None, house).train) == 40


def test_sizes_and_inducing_points_are_the_papers():
    assert [splits.resolve_size(size, 13829) for size in ("5%", "80%", "100%")] == [
        691,
        11063,
        13829,
    ], "of cadata"
    assert [splits.resolve_size(size, 450) for size in (100, 200, 500)] == [100, 200, 450], (
        "capped by the pool"
    )
    assert [splits.default_inducing_count(n) for n in (5300, 3772, 7400, 4177, 300, 10**6)] == [
        53,
        37,
        74,
        41,
        20,
        200,
    ]


def test_own_rows_have_as_many_inducing_inputs_as_are_affordable():
    rows = (30, 200, 300, 500, 772, 1000, 2000, 10**6)
    counts = [30, 200, 200, 250, 321, 282, 200, 200]
    assert [splits.inducing_count_of_user_table(n) for n in rows] == counts
    for n in range(500, 2001):
        count = splits.inducing_count_of_user_table(n)
        assert n * count**2 <= 2000 * 200**2
        assert count == n // 2 or n * (count + 1) ** 2 > 2000 * 200**2, "the largest such number"


@pytest.mark.parametrize("size", [-5, 0, "0%", "101%", "abc", "5 %%", "1/0%", ""])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(UserError, match=re.escape(f"size '{size}'")):
        splits.resolve_size(size, 1000)


def test_unknown_split_and_too_few_rows_are_refused():
    for n, kind, word in ((100, "regresion", "regression"), (19, "counts", "19 rows")):
        with pytest.raises(UserError, match=word):
            split(n, kind, 0)


def test_training_rows_have_mean_zero_and_deviation_one_and_other_targets_stay():
    prepared = prepare(made_up(500), spec("regression"), 0, "100%")
    for values in (prepared.X_train, prepared.y_train):
        np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(values.std(axis=0), 1.0, rtol=1e-12)
    dataset = made_up(300, task="binary")
    prepared = prepare(dataset, spec("counts", "binary"), 0, 100)
    assert (prepared.y_mean, prepared.y_std) == (0.0, 1.0)
    assert np.array_equal(prepared.y_train, dataset.y[split(300, "counts", 0).train[:100]])


@given(st.lists(st.floats(-1e90, 1e90), min_size=1, max_size=30), st.floats(-1e50, 1e50))
def test_normalised_values_are_finite_and_constant_features_zero(values, constant):
    X = np.column_stack([values, np.full(len(values), constant)])
    scale = splits.normalisation(X)
    assert np.isfinite(scale.apply(X.copy())).all()
    assert (
        scale.apply(np.array([[0.0, constant], [0.0, constant + 1.0], [0.0, -7.0]]))[:, 1] == 0.0
    ).all()
    assert scale.std[1] == 1.0


@given(st.integers(100, 600), seeds)
@settings(max_examples=20)
def test_validation_rows_can_be_fewer_or_trained_on(n, seed):
    data, plain = made_up(n), spec("regression")
    usual, tenth, trained = (
        prepare(data, replace(plain, validation=v), seed, 30) for v in ("all", "tenth", "train")
    )
    assert np.array_equal(tenth.X_train, usual.X_train)
    assert np.array_equal(tenth.y_val, usual.y_val[:3])
    raw = usual.y_train * usual.y_std + usual.y_mean, usual.y_val * usual.y_std + usual.y_mean
    assert np.allclose(trained.y_train * trained.y_std + trained.y_mean, np.concatenate(raw))
    assert np.allclose(
        trained.y_test * trained.y_std + trained.y_mean, usual.y_test * usual.y_std + usual.y_mean
    )


def test_a_tenth_of_few_training_rows_is_one_validation_row():
    few = replace(spec("regression"), validation="tenth")
    assert len(prepare(made_up(200), few, 0, 5).y_val) == 1


def test_half_a_row_rounds_up():
    assert splits.resolve_size("5%", 10) == 1
    assert splits.resolve_size("5%", 50) == 3
    with pytest.raises(UserError):
        splits.resolve_size("4%", 10)


def test_values_too_small_for_a_deviation_are_constant():
    X = np.array([[0.0], [1e-200]])
    assert splits.normalisation(X).constant.all()


def test_column_without_values_is_constant():
    scale = splits.normalisation(np.array([[np.nan, 1.0], [np.nan, 3.0]]))
    assert scale.constant.tolist() == [True, False]
    assert scale.mean.tolist() == [0, 2]
    assert scale.std.tolist() == [1, 1]


def test_training_sets_of_a_division_by_time_are_random_rows_of_the_pool():
    by_time = splits.Arrangement("time", np.arange(200.0), "day")
    parts = split(200, "regression", 0, None, by_time)
    assert sorted(parts.train) == list(range(134))
    assert parts.train[:20].max() > 40


def test_groups_are_divided_at_random():
    groups = np.repeat(np.arange(40.0), 5)
    by_group = splits.Arrangement("group", groups, "house")
    tested = [set(groups[split(200, "regression", seed, None, by_group).test]) for seed in (0, 1)]
    assert tested[0] != tested[1]
    assert min(tested[0]) < 20


def test_groups_that_leave_no_test_rows_are_refused():
    one_group = splits.Arrangement("group", np.zeros(60), "house")
    with pytest.raises(UserError, match=r"csv\.by=house: its 1 groups"):
        split(60, "airline", 0, None, one_group)


def test_label_of_an_arrangement_tells_them_apart():
    labels = [
        splits.Arrangement(kind, test=test).label for kind in ("random", "time") for test in (0, 7)
    ]
    assert labels == ["", "-test7", "-time", "-time-test7"]


def test_indicators_of_categories_are_not_normalised():
    X = np.column_stack([np.arange(60.0), np.arange(60) == 3, np.zeros(60)])
    rows = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))
    prepared = normalise_split(X, np.arange(60.0), "regression", rows, indicators=2)
    np.testing.assert_array_equal(prepared.X_train[:, 1:], X[:40, 1:])
    assert abs(prepared.X_train[:, 0].std() - 1) < 1e-12
    # An indicator that no training row has is kept, too: it tells an unknown level from the others.
    assert not prepared.features.constant.any()


def test_a_tenth_is_tested_on_and_a_tenth_of_the_others_is_for_validation():
    assert split_sizes(1000, "tenth") == (810, 90, 100)
    assert split_sizes(1000, "published") == (810, 90, 100)


def test_a_split_is_published_only_where_the_dataset_has_some():
    with pytest.raises(UserError, match="no published splits; use split=tenth"):
        split(100, "published", 0)
