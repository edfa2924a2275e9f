"""Options of objectives and components of mixtures: which cells they make, under which setting."""

import pytest
import yaml

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.grid import check
from dlmexp.experiment.plan.overrides import expand_shorthand
from tests.conftest import REPOSITORY
from tests.support.cells import planned

REGRESSION = "dataset=pol sizes=[60] seeds=[0]"
BLOCKS = "method.block_tighter.options.blocks"
ALPHA = "method.t_pep.options.alpha"


def asked(words):
    return planned(*expand_shorthand(f"{REGRESSION} {words}".split()))


def refusal(words):
    with pytest.raises(UserError) as error:
        check(compose(expand_shorthand(f"{REGRESSION} {words}".split())))
    return str(error.value)


def test_a_changed_option_is_in_the_cell_and_a_change_of_the_setting():
    (group,) = asked(f"method=t_pep {ALPHA}=0.2")
    assert [cell.objective_options for cell in group.cells] == [{"alpha": 0.2}]
    assert group.setting.text == f"{ALPHA}=0.2"
    assert "alpha=0.2" in group.label


@pytest.mark.parametrize("words", ["method=t_pep", f"method=t_pep {ALPHA}=0.5"])
def test_options_at_their_defaults_are_in_no_key_and_no_setting(words):
    (group,) = asked(words)
    assert group.cells[0].objective_options == {}
    assert group.setting.text == ""


def test_a_whole_option_is_typed_again_as_a_whole_number():
    (group,) = asked(f"method=block_tighter {BLOCKS}=8")
    assert group.setting.text == f"{BLOCKS}=8"
    assert asked(f"method=block_tighter {group.setting.text}") == [group]


def test_selecting_beta_of_a_method_without_selection_is_a_change_of_the_setting():
    (group,) = asked("method=tighter method.tighter.select=true beta=[2,1]")
    assert [cell.beta for cell in group.cells] == [2.0, 1.0]
    assert "method.tighter.select=true" in group.setting.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"method=t_pep {ALPHA}=2", "from 0 to 1"),
        (f"method=block_tighter {BLOCKS}=1.5", "whole number"),
        ("method=t_pep method.t_pep.options.blocks=2", "no option 'blocks'; its options: alpha"),
        (f"method=elbo {ALPHA}=0.2", "method=t_pep selects it"),
        ("method=elbo method.elbo.objective=loo", "choose another name"),
        ("method=elbo method.elbo.components=[2]", "method=mixture_log_dlm"),
        ("method=mixture_log_dlm K=0", "K=[0]"),
        ("method=mixture_log_dlm estimator=bmc", "exact or quadrature"),
        ("method=mixture_log_dlm measure=gradient", "measure=gradient"),
    ],
)
def test_what_an_objective_does_not_take_is_refused(words, message):
    assert message in refusal(words)


def test_candidates_of_a_mixture_are_betas_and_components():
    (group,) = asked("method=mixture_log_dlm beta=[1,10] K=4,1")
    assert [(cell.beta, cell.components) for cell in group.cells] == [
        (10.0, 1),
        (10.0, 4),
        (1.0, 1),
        (1.0, 4),
    ]
    assert group.betas == (10.0, 10.0, 1.0, 1.0)
    assert group.components == (1, 4, 1, 4)


def test_candidates_with_equally_many_components_are_one_batch():
    (group,) = asked("method=mixture_log_dlm beta=[1,10] K=[1,4]")
    assert len({cell.shared_values for cell in group.cells}) == 2


def test_the_single_gaussian_of_a_mixture_is_the_cell_of_joint_dlm():
    alone, mixture = asked("method=joint_log_dlm,mixture_log_dlm beta=[1] K=[1]")
    assert alone.keys == mixture.keys


def test_components_are_the_methods_own_unless_typed():
    (usual,) = asked("method=mixture_log_dlm beta=[1]")
    assert usual.components == (1, 2, 8)
    assert "K" not in usual.setting.changes
    (typed,) = asked("method=mixture_log_dlm beta=[1] K=8")
    assert typed.components == (8,)
    assert typed.setting.changes["K"] == [8]


def test_components_of_a_method_are_the_same_change_as_those_of_the_run():
    (of_run,) = asked("method=mixture_log_dlm beta=[1] K=[1,3]")
    (of_method,) = asked("method=mixture_log_dlm beta=[1] method.mixture_log_dlm.components=[3,1]")
    assert of_run == of_method


def test_another_method_may_be_a_mixture_too():
    alone, _ = asked("method=joint_log_dlm,elbo beta=[1] method.joint_log_dlm.components=[2]")
    assert alone.components == (2,)
    assert alone.setting.changes["method.joint_log_dlm.components"] == [2]


def test_components_leave_methods_of_one_gaussian_alone():
    elbo, _ = asked("method=elbo,mixture_log_dlm beta=[1] K=[2]")
    assert [cell.components for cell in elbo.cells] == [1]
    assert elbo.components == ()


def test_a_mixture_is_whitened_and_its_single_gaussian_too():
    groups = asked("method=mixture_log_dlm beta=[1] K=[1,2] parameterisation=[unwhitened]")
    assert {cell.parameterisation for group in groups for cell in group.cells} == {"whitened"}


def test_a_typed_split_is_in_the_cells_of_several_components_alone():
    (group,) = asked("method=mixture_log_dlm beta=[1] K=[1,2] split_at=30 max_iterations=100")
    assert [cell.split_at for cell in group.cells] == [None, 30]
    assert group.setting.changes["training.split_at"] == 30


def test_a_split_after_the_end_of_training_is_refused():
    with pytest.raises(UserError, match="split_at=100"):
        asked("method=mixture_log_dlm beta=[1] K=2 split_at=100 max_iterations=100")


def test_lbfgs_trains_closed_forms_and_the_others_keep_adam():
    tighter, dlm = asked("method=tighter,joint_log_dlm beta=[1] optimizer=lbfgs")
    (closed,) = tighter.cells
    assert (closed.optimizer, closed.lr, closed.window) == ("lbfgs", 0.0, None)
    assert (closed.tolerance, closed.max_iterations) == (1e-4, 5000)
    (explicit,) = dlm.cells
    assert (explicit.optimizer, explicit.window) == ("adam", 50)
    assert tighter.setting.changes["training.optimizer"] == "lbfgs"


def test_settings_of_adam_do_not_change_cells_of_lbfgs():
    before, after = (asked(f"method=tighter optimizer=lbfgs {lr}") for lr in ("", "lr=0.05"))
    assert before[0].keys == after[0].keys


def test_restarts_are_those_of_lbfgs_and_leave_other_cells_as_they_were():
    (group,) = asked("method=tighter optimizer=lbfgs restarts=3")
    assert {cell.restarts for cell in group.cells} == {3}
    assert "restarts=3" in group.cells[0].describe()
    with_adam, plain = (asked(f"method=tighter {words}") for words in ("restarts=3", ""))
    assert with_adam[0].keys == plain[0].keys


def test_lbfgs_has_learning_curves():
    (group,) = asked("method=tighter optimizer=lbfgs evaluate=10")
    assert {(cell.optimizer, cell.evaluate_every) for cell in group.cells} == {("lbfgs", 10)}


def test_every_objective_is_a_method_that_help_and_specification_name(capsys):
    methods = {}
    for path in sorted((REPOSITORY / "conf" / "method").glob("*.yaml")):
        methods[path.stem] = yaml.safe_load(path.read_text())["objective"]
    assert set(OBJECTIVES) <= set(methods.values())
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    listed = capsys.readouterr().out.split("methods:")[1].split("Shell completion")[0].split()
    assert listed == sorted(methods)
    specification = (REPOSITORY / "docs" / "SPEC.md").read_text()
    for name in (*OBJECTIVES, "method=mixture_log_dlm"):
        assert f"`{name}`" in specification, name
