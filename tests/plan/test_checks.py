"""What is refused before anything runs, in one sentence."""

import pytest

from dlmexp.data.spec import dataset_names
from dlmexp.errors import UserError
from dlmexp.plan.checks import check
from dlmexp.plan.compose import compose
from dlmexp.plugins import extended

REFUSED = {
    "method=[joint_sq_dlm]": "joint_sq_dlm is for regression and banana is binary data",
    "method=[fitc]": "fitc is for regression",
    "method=[]": "method=\\[\\]: the grid is empty",
    "seeds=[]": "seeds=\\[\\]: the grid is empty",
    "seeds=[-1]": "seeds are 0, 1, 2",
    "sizes=[]": "sizes=\\[\\]: the grid is empty",
    "estimator=[]": "estimator=\\[\\]",
    "estimator.exact.samples=[0]": "exact takes no options",
    "parameterisation=[white]": "did you mean whitened",
    "measure=fits": "did you mean fit",
    "device=gpu": "device=gpu: give auto, cpu or cuda",
    "device=cuda:1": "device=cuda:1: give device=cuda, with CUDA_VISIBLE_DEVICES=1 in the environment",
    "dtype=float16": "did you mean float64 or float32|did you mean float32 or float64",
    "evaluate=sometimes": "give 'end', 'epoch' or a number",
    "evaluate=0": "give 'end', 'epoch' or a number",
    "training.binary.max_iterations=0": "training.binary.max_iterations=0: give a number > 0",
    "training.binary.lr=-0.1": "training.binary.lr=-0.1",
    "training.binary.window=0": "training.binary.window=0",
    "dataset.banana.M=-3": "dataset.banana.M=-3",
    "batch_cells=0": "batch_cells=0",
    "checkpoint_seconds=-1": "checkpoint_seconds=-1",
    "dataset.banana.name=../../x": "it names a folder",
    "dataset.banana.test_cap=0": "dataset.banana.test_cap=0: give a number > 0",
    "dataset.banana.mean=foo": "dataset.banana.mean=foo",
    "dataset.banana.kernel=rbff": "kernel=rbff: did you mean rbf",
    "dataset.banana.likelihood=probt": "did you mean probit",
    "method.elbo.objective=elbow": "did you mean elbo",
    "method.elbo.variant=foo": "method.elbo.variant=foo",
    "method.elbo.objective=log_dlm": "the name 'elbo' belongs to a method of ours: give yours another",
    "method.elbo.variant=fixed": "the name 'elbo' belongs to a method of ours: give yours another",
    "method.elbo.select=true": "the name 'elbo' belongs to a method of ours: give yours another",
    "training.binary.lr=inf": "training.binary.lr=inf",
    "workers=0": "workers=0",
    "budget=abc": "budget=abc: write it as 90s",
    "device=cpu:x": "device=cpu:x",
    "seeds=[99999999999]": "seeds are 0, 1, 2",
    "estimator.exact.samples=[3]": "exact takes no options",
    "estimator.exact.nu=1": "exact takes no options",
    "dataset.banana.name=ringnorm": "the name 'ringnorm' belongs to a dataset of ours",
    "dataset.banana.loader=table": "the name 'banana' belongs to a dataset of ours",
    "dataset.banana.options.checks.positives=3": "the name 'banana' belongs to a dataset of ours",
}

ESTIMATORS = {
    "estimator.bmc.samples=[]": "give at least one value",
    "estimator.bmc.nu=1": "bmc takes samples",
    "estimator.bmc.samples=[-2]": "estimator.bmc.samples=-2",
    "estimator.smooth_bmc.nu=-1": "estimator.smooth_bmc.nu=-1",
    "estimator.quadrature.nodes=0": "estimator.quadrature.nodes=0",
    "estimator.ups.sampler=atuo": "did you mean auto",
}


@pytest.mark.parametrize("word", REFUSED)
def test_refused_in_a_sentence(word):
    with pytest.raises(UserError, match=REFUSED[word]) as found:
        check(compose(["dataset=banana", word]))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("word", ESTIMATORS)
def test_estimators_take_what_they_have(word):
    with pytest.raises(UserError, match=ESTIMATORS[word]):
        check(compose(["dataset=banana", "estimator=[bmc,smooth_bmc,quadrature,ups]", word]))


def test_a_users_table_has_a_name_of_its_own(tmp_path):
    words = ["dataset=csv", f"csv.path={tmp_path}/x.csv", "csv.target=y", "csv.task=binary"]
    check(compose([*words, "csv.name=mine"]))
    with pytest.raises(UserError, match="the name 'sarcos' belongs"):
        check(compose([*words, "csv.name=sarcos"]))


def test_a_users_method_may_be_one_of_ours_under_a_name_of_its_own(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text(
        "# @package method.mine\nobjective: log_dlm\nvariant: joint\nselect: false\n"
    )
    with extended(str(tmp_path)):
        cfg = compose(["dataset=banana", "method=mine"])
        check(cfg)
    assert list(cfg.method) == ["mine"]


@pytest.mark.slow
def test_what_we_ship_passes():
    for name in dataset_names():
        check(compose([f"dataset={name}", "sizes=[50]", "method=elbo"]))


def test_results_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="that is a file; name a folder"):
        check(compose(["dataset=banana", f"results={tmp_path}/file"]))


def test_empty_beta_list():
    with pytest.raises(UserError, match=r"beta.values=\[\]: the grid is empty"):
        check(compose(["dataset=banana", "beta=list", "beta.values=[]"]))
