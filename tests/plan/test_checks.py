"""What is refused before anything runs, by a sentence that names it: single values, and what goes with what."""

import copy
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from dlmexp.config import RunConfig
from dlmexp.errors import UserError
from dlmexp.plan.checks import check, check_values
from dlmexp.plan.compose import compose
from dlmexp.plugins import extended
from tests.conftest import REPOSITORY
from tests.support.cells import planned


@cache
def sound() -> RunConfig:
    return compose(["dataset=banana", "beta=list"])


def places(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every setting of a config: its dotted name, the dataclass that has it, and its field."""
    for field in fields(node):
        value = getattr(node, field.name)
        yield f"{prefix}{field.name}", node, field
        inner = value if isinstance(value, dict) else {"": value}
        for key, item in inner.items():
            if is_dataclass(item):
                yield from places(item, f"{prefix}{field.name}.{key}{'.' if key else ''}")


LIMITED = [name for name, _, field in places(sound()) if field.metadata.keys() - {"keys"}]


def changed(name: str, value: Any) -> RunConfig:
    cfg = copy.deepcopy(sound())
    node, field = next((node, field) for place, node, field in places(cfg) if place == name)
    setattr(node, field.name, value)
    return cfg


def beyond(limits: Any, real: bool) -> Iterator[Any]:
    """Values just beyond the limits of a field, of a real number or not."""
    if "choices" in limits or "pattern" in limits:
        yield "nosuch"
    if "above" in limits or "least" in limits:
        yield limits["above"] if "above" in limits else limits["least"] - 1
        yield from (math.nan, math.inf) if real else ()
    if limits.get("most"):
        yield limits["most"] * 2


@pytest.mark.parametrize("name", LIMITED)
def test_every_limit_of_the_schema_holds(name):
    check_values(sound())
    field = next(field for place, _, field in places(sound()) if place == name)
    kinds = [field.type, *get_args(field.type)]
    wrap = next((get_origin(kind) for kind in kinds if get_origin(kind) in (list, dict)), None)
    values = [
        {list: [bad], dict: {"x": bad}}.get(wrap, bad) for bad in beyond(field.metadata, "float" in str(field.type))
    ]
    values += [{list: [], dict: {}}.get(wrap, "")] if field.metadata.get("filled") else []
    values += [[3, 3]] if field.metadata.get("distinct") else []
    assert values
    for value in values:
        with pytest.raises(UserError, match=rf"^{name}\b") as refused:
            check_values(changed(name, value))
        assert "\n" not in str(refused.value)


def write_method(folder: Path, text: str) -> None:
    (folder / "method").mkdir()
    (folder / "method" / "mine.yaml").write_text(f"# @package method.mine\n{text}")


POL, FLOOR = "dataset=pol sizes=[60]", "training.regression.noise_floor"
REFUSED = {
    "M=many": "M=many", "training.binary.lr=true": "lr=true", "seeds=[[1]]": "seeds", "seeds=3": "seeds",
    "csv.columns=[[a]]": "csv.columns", "++training.binary.initial={a:[1]}": "initial",
    "training.binary.initial={1:2}": "initial", "training.binary=5": "training.binary",
    "method=[joint_sq_dlm]": "joint_sq_dlm", "method=[fitc]": "fitc", "estimator.exact.samples=[0]": "exact",
    "device=cuda:1": "CUDA_VISIBLE_DEVICES", "budget=abc": "abc",
    "training.binary.final_lr=0.01": "training.binary", "training.binary.initial.lengthscale=0": "lengthscale=0",
    "dataset.banana.name=../../x": "../../x", "dataset.banana.kernel=rbff": "rbff", "results=pyproject.toml": "file",
    "dataset.banana.likelihood=probt": "probt", "dataset.banana.likelihood=poisson": "poisson",
    "method.elbo.objective=log_dlm": "'elbo'", "method.elbo.select=true": "'elbo'",
    "dataset.banana.name=ringnorm": "'ringnorm'", "dataset.banana.loader=table": "'banana'",
    "dataset.banana.options.checks.positives=3": "'banana'", "~training.binary": "training.binary",
    "~training.binary.lr": "training.binary.lr",
    "estimator=[bmc] estimator.bmc.samples=[]": "estimator.bmc.samples", "estimator=[bmc] +estimator.bmc.nu=1": "nu",
    "estimator=[bmc] estimator.bmc.samples=[-2]": "samples=-2",
    "estimator=[quadrature] estimator.quadrature.nodes=0": "nodes=0",
    "estimator=[ups] estimator.ups.sampler=atuo": "auto", "estimator=[smooth_bmc] estimator.smooth_bmc.nu=a": "nu=a",
    "estimator=[bmc] estimator.bmc.samples=[9999999]": "9999999",
    "protocol=annealed training.binary.max_iterations=300": "6500",
    "sizes=[-5]": "size '-5'", "sizes=[many]": "size 'many'", "sizes=['150%']": "150%", "evaluate=epoch": "evaluate=",
    "training.binary.noise_floor=0.01": "banana", f"{POL} {FLOOR}=0.1": "noise_floor=0.1",
    f"{POL} training.regression.initial.noise=0.005 {FLOOR}=0.01": "0.005",
    f"{POL} method=[mine]": "base=fitc",  # which gives no hyperparameters
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_go_together_is_refused(words, monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    write_method(tmp_path, "objective: log_dlm\nvariant: fixed\nbase: fitc\n")
    with extended(str(tmp_path)), pytest.raises(UserError) as refused:
        planned("dataset=banana", *words.split())
    assert REFUSED[words] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_of_ours_is_not_for_other_data_or_methods(tmp_path):
    words = ["dataset=csv", f"csv.path={tmp_path}/x.csv", "csv.target=y", "csv.task=binary"]
    check(compose([*words, "csv.name=mine"]))
    with pytest.raises(UserError, match="'sarcos'"):
        check(compose([*words, "csv.name=sarcos"]))
    write_method(tmp_path, "objective: log_dlm\nselect: false\n")
    with extended(str(tmp_path)):
        cfg = compose(["dataset=banana", "method=mine"])
        check(cfg)
    assert list(cfg.method) == ["mine"]
