"""Which model is meant: mistakes are said in the words in which the terms were given."""

import pytest

from dlmexp.errors import UserError
from dlmexp.models.choice import choose_models
from dlmexp.models.file import encoded
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import load
from dlmexp.records.store import Store
from tests.support.cells import candidates, scored
from tests.support.models import made_up_model


@pytest.mark.parametrize("option", ["--where", "--by", "model:"])
def test_mistakes_name_the_option_that_was_used(tmp_path, option):
    cells = []
    for seed in (0, 1):
        model = made_up_model(seed=seed)
        record = scored(model.cell, nll=0.1)
        record.result.validation.clear()
        Store(tmp_path).write(record, model=encoded(model))
        cells.append(model.cell)
    write_manifest(tmp_path, manifest("mine", [candidates("elbo", [cell]) for cell in cells]))
    results = load(tmp_path)
    with pytest.raises(
        UserError, match=f"name one with {option} key=KEY, of {min(cell.key for cell in cells)}|{cells[1].key}"
    ):
        choose_models(results, [], option=option)
    with pytest.raises(UserError, match=f"^{option} seed=0: the models of all seeds are meant"):
        choose_models(results, ["seed=0"], every_seed=True, option=option)
