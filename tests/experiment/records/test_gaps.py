"""What larger M could gain, as records have it."""

from msgspec.structs import replace

from dlmexp.experiment.cluster.status import print_status, read_status
from dlmexp.experiment.records.gaps import largest_gaps
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.store import Store
from tests.support.cells import ELBO, candidates, scored

LINE = (
    "banana elbo: at its hyperparameters a larger M than 53 gains at most 0.25 nats per row "
    "(n = {})"
)


def written(root, cell, gap=None):
    """Write a record with this gap."""
    record = scored(cell, nll=0.5)
    record.result.evidence_gap = gap
    Store(root).write(record)


def cells_of(*seeds, beta=1.0, **changes):
    return [replace(ELBO, seed=seed, beta=beta, **changes) for seed in seeds]


def test_largest_gap_of_a_method_on_a_dataset_is_its_line(tmp_path):
    small, large = cells_of(0, 1)
    (wide,) = cells_of(0, n=200)
    for cell, gap in ((small, 0.125), (large, 0.0625), (wide, 0.25)):
        written(tmp_path, cell, gap)
    asked = [candidates("elbo", [cell]) for cell in (small, large, wide)]
    (gap,) = largest_gaps(Store(tmp_path), asked)
    assert gap.line == LINE.format(200)


def test_methods_that_select_and_cells_without_a_gap_have_no_line(tmp_path):
    (one,) = cells_of(0)
    (other,) = cells_of(0, beta=0.5)
    (without,) = cells_of(1)
    (missing,) = cells_of(2)
    written(tmp_path, one, 0.25)
    written(tmp_path, other)
    written(tmp_path, without)
    asked = [
        candidates("beta_elbo", [one, other]),
        candidates("elbo", [without]),
        candidates("elbo", [missing]),
    ]
    assert largest_gaps(Store(tmp_path), asked) == []


def test_status_prints_the_line(tmp_path, capsys):
    (cell,) = cells_of(0)
    written(tmp_path, cell, 0.25)
    write_manifest(tmp_path, Manifest("one", [candidates("elbo", [cell])]))
    status = read_status(tmp_path)
    print_status(status)
    assert LINE.format(100) in capsys.readouterr().out
    assert [gap.gap for gap in status.gaps] == [0.25]


def test_damaged_record_has_no_line(tmp_path):
    (cell,) = cells_of(0)
    written(tmp_path, cell, 0.25)
    Store(tmp_path).path(cell.dataset, cell.key).write_text("{")
    assert largest_gaps(Store(tmp_path), [candidates("elbo", [cell])]) == []
