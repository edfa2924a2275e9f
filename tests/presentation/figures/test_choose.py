"""Which figures are drawn from which rows, and what is said about the rest."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

from types import SimpleNamespace

import pytest

from dlmexp.cli import main
from dlmexp.common import catalogue
from dlmexp.common.errors import UserError
from dlmexp.experiment.records import results as records
from dlmexp.experiment.records.settings import parse_where
from dlmexp.presentation.figures.choose import _stand_ins, _with_requested_lines, pages
from dlmexp.presentation.figures.notes import not_drawn
from dlmexp.presentation.figures.numbers import measure, panel_rows
from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel, methods
from dlmexp.presentation.figures.plot import Request, draw, drawings
from tests.support.tidy import Made, sweep


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`dlmexp plot` on made-up results."""
    results = Made(sweep())
    results.store = SimpleNamespace(model_files=set)
    results.root = tmp_path / "results"
    monkeypatch.setattr(records, "ResultsFolder", lambda folder, columns, pack_folders: results)
    results.root.mkdir()
    return lambda *words: main(["plot", *words, "--results", str(tmp_path / "results")])


def shown(results: Made, *ids: str, **asked) -> dict[str, list[str]]:
    found = drawings(results, [*ids], Request(**asked))
    return {
        one.name: [panel.panel.dataset for panel in one.panels_with_results]
        for one in found
        if one.panels_with_results
    }


def test_a_stand_in_has_the_panels_of_a_dataset_without_results_but_drawn_data_does_not_pose_as_the_papers():
    results = Made(sweep(dataset="sarcos_test", stands_for="sarcos"))
    assert shown(results, "reg-log") == {"reg-log": ["sarcos_test"]}
    assert any(
        "sarcos_test for the paper's sarcos" in note for note in draw(results, "reg-log").notes
    )
    results = Made(sweep(dataset="ringnorm_drawn", stands_for="ringnorm"))
    assert shown(results, "class-log") == {}
    named = shown(results, "class-log", by={"dataset": ["ringnorm_drawn"]})
    assert named == {"class-log-ringnorm_drawn": ["ringnorm_drawn"]}


def test_own_data_has_a_figure_of_its_own():
    results = Made(sweep(dataset="houses", task="regression", metric="mse"))
    drawn = draw(results, "own-houses")
    kinds = [(cell.panel.kind, cell.panel.metric) for cell in drawn.panels_with_results]
    assert kinds == [("sizes", "nll"), ("sizes", "mse"), ("betas", "nll")]
    assert drawn.commands == ["dlmexp run experiment=made-up"]
    with pytest.raises(UserError, match="own-houses"):
        draw(results, "own-house")


@pytest.mark.slow
def test_by_and_where_choose_rows():
    rows = [*sweep(), *sweep(("elbo",), changes={"training.lr": 0.01}, lr=0.01, shift=5.0)]
    results = Made(rows)

    def means(**asked) -> dict[str, float]:
        return {
            s.line.method: s.points["mean"].iloc[0]
            for s in draw(results, "class-log", Request(**asked)).measured_panels[0].nonempty_series
        }

    plain, at_10 = means(), means(by={"beta": ["10"]})
    assert means(by={"seed": ["1"]})["elbo"] == pytest.approx(plain["elbo"])
    assert {*means(by={"method": ["elbo"]})} == {"elbo"}
    assert at_10["elbo"] == plain["elbo"], "the ELBO has no beta to choose"
    assert at_10["beta_elbo"] == pytest.approx(plain["beta_elbo"] + 0.02)
    changed = Request(where=parse_where(["training.lr=0.01"], results.candidates, results.changes))
    drawn = draw(results, "class-log", changed)
    assert (drawn.name, "with training.lr=0.01" in drawn.notes[0]) == ("class-log-lr=0.01", True)
    assert means(where=changed.where) == {"elbo": pytest.approx(plain["elbo"] + 5)}


def test_what_is_not_run_and_what_is_left_out_is_said():
    rows = [*sweep(("elbo", "joint_log_dlm")), *sweep(("elbo",), protocol="released")]
    notes = draw(Made(rows), "class-log").notes
    assert any(
        "β-ELBO, fixed DLM" in note and "experiment=class-log dataset=banana" in note
        for note in notes
    )
    assert any("--protocol released" in note for note in notes)
    assert any("Not run: thyroid" in note for note in notes)
    released = draw(Made(rows), "class-log", Request(protocol="released"))
    assert (released.name, "protocol=released" in released.commands[0]) == (
        "class-log-released",
        True,
    )
    quick = draw(Made(sweep(protocol="quick")), "class-log")
    assert (quick.name, "preset quick" in quick.notes[0]) == ("class-log-quick", True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("clas-log", "class-log"),
        ("--by nonsense", "field=value"),
        ("--by sed=0", "seed"),
        ("--by kernel=matern52", "--where kernel=matern52"),
        ("--by dataset=bananna", "banana"),
        ("--by seed=17", "0, 1, 2"),
        ("reg-log --by dataset=banana", "has no panel in reg-log"),
        ("--where training.lrr=0.1", "lr"),
        ("--where training.lr=0.3", "0.1"),
        ("--protocol relesed", "paper"),
        ("--compare-protocols", "paper"),
        ("--format bmp", "png"),
        ("reg-sq", "experiment=reg-sq"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(run, tmp_path, capsys, words, says):
    assert run(*words.split()) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "results" / "figures").exists()


@pytest.mark.slow
def test_files_captions_and_list(run, tmp_path, capsys):
    assert run("class-log", "--captions") == 0
    names = sorted(path.name for path in (tmp_path / "results" / "figures").iterdir())
    assert names == ["class-log.csv", "class-log.md", "class-log.png"]
    said = capsys.readouterr().out
    assert FIGURES["class-log"].caption in said
    assert "Repetitions: 3" in said
    assert run("--list") == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "of 16 lines" in listed["class-log"]
    assert "not run" in listed["airline"]


@pytest.mark.parametrize(("kind", "metric"), [("sizs", "nll"), ("sizes", "nlll")])
def test_a_panel_is_checked_when_it_is_made(kind, metric):
    with pytest.raises(UserError, match=f"{kind}.*{metric}.*sizes: nll"):
        Panel(kind, "banana", metric, methods("elbo"), "")


def test_a_plugins_figure_is_drawn(monkeypatch):
    panel = Panel("sizes", "waves", "nll", (Line("elbo"), Line("tempered")), "waves")
    monkeypatch.setitem(FIGURES._items, "mine", Figure("mine", (panel,), 1, "Mine."))
    with pytest.raises(UserError, match="'tempered'"):
        draw(Made(sweep()), "mine")
    rows = sweep(("elbo", "tempered"), dataset="waves")
    assert [s.line.method for s in draw(Made(rows), "mine").measured_panels[0].nonempty_series] == [
        "elbo",
        "tempered",
    ]


def test_side_by_side_more_than_six_panels_need_pages_of_equal_length():
    rows = []
    for protocol in ("paper", "released"):
        for name in ("pol", "cadata", "sarcos", "song"):
            rows += sweep(dataset=name, protocol=protocol)
    request = Request(compare_protocols=True)
    lengths = {
        page.name + page.number: len(page.figure.panels)
        for page in pages(Made(rows), ["reg-log", "reg-sq", "calibration-reg"], request)
    }
    assert lengths["reg-log"] == 6, "fits on one page"
    assert lengths["reg-sq"] == 4
    numbers = [f"calibration-reg{number}" for number in "1234"]
    assert [lengths[name] for name in numbers] == [5, 5, 5, 5]


def test_the_first_of_several_stand_ins_is_drawn(monkeypatch):
    monkeypatch.setattr(catalogue, "stands_for", lambda name: "peds1_dir1")
    assert _stand_ins(["peds1_left", "peds1_right"]) == {"peds1": "peds1_left"}


def test_a_dataset_of_the_paper_has_no_panels_of_others():
    results = Made([*sweep(), *sweep(dataset="thyroid")])
    only = shown(results, "class-log", by={"dataset": ["thyroid"]})
    assert only == {"class-log-thyroid": ["thyroid"]}
    with pytest.raises(UserError, match="banana has no panel in default"):
        shown(results, "default", by={"dataset": ["banana"]})


def test_own_data_that_is_named_has_the_panels_of_its_task():
    results = Made([*sweep(), *sweep(dataset="houses")])
    named = shown(results, "default", by={"dataset": ["houses"]})
    assert named == {"default-houses": ["houses"]}


def test_only_panels_against_size_are_drawn_at_chosen_betas():
    panels = (
        Panel("sizes", "banana", "nll", methods("elbo", "joint_log_dlm"), ""),
        Panel("betas", "banana", "nll", methods("joint_log_dlm"), ""),
    )
    sizes, betas = _with_requested_lines(panels, {"beta": ["1", "0.1"]})
    assert [line.beta for line in sizes.lines] == [None, 1.0, 0.1], "the ELBO has no beta"
    assert [line.names for line in sizes.lines] == ["method", "beta", "beta"]
    assert betas == panels[1]


def test_a_figure_that_needs_all_datasets_is_drawn_unasked_only_with_them():
    drawn_data = sweep(dataset="ringnorm_drawn")
    names = {page.name for page in pages(Made(drawn_data), [], Request())}
    assert "truth" not in names
    assert "default" in names


def test_named_sweep_has_a_figure_of_its_own_rows():
    rows = [*sweep(experiment="mine"), *sweep(experiment="other", protocol="annealed", shift=9.0)]
    results = Made(rows)
    drawn = draw(results, "own-mine")
    kinds = [(cell.panel.kind, cell.panel.metric) for cell in drawn.panels_with_results]
    assert ("sizes", "nll") in kinds
    assert ("betas", "nll") in kinds
    assert {cell.protocol for cell in drawn.panels_with_results} == {"paper"}
    assert {cell.protocol for cell in draw(results, "own-other").panels_with_results} == {
        "annealed"
    }
    with pytest.raises(UserError, match="did you mean own-mine"):
        draw(results, "own-minne")


def test_lines_that_differ_in_samples_look_different_and_have_entries_of_their_own():
    lines = tuple(Line("joint_log_dlm", "mine", samples) for samples in (4, 8, 16))
    looks = [line.look for line in Panel("sizes", "banana", "nll", lines, "x").lines]
    assert len({look.label for look in looks}) == 3
    assert len({(look.colour, look.marker, look.dashes) for look in looks}) == 3


def test_line_that_is_alone_keeps_the_name_of_its_method():
    lines = (Line("elbo"), Line("joint_log_dlm", "bmc", 10))
    assert Panel("sizes", "banana", "nll", lines, "x").lines == lines


def test_panel_without_the_metric_in_any_result_says_so():
    panel = Panel("sizes", "banana", "crps", (Line("elbo"),), "class-log")
    shown_too = Panel("sizes", "banana", "nll", (Line("elbo"),), "class-log")
    figure = Figure("made-up", (panel, shown_too), columns=2, caption="")
    results = Made(sweep(("elbo",)))
    measured = []
    for part in figure.panels:
        measured.append(measure(part, results, panel_rows(part, results, {})))
    reasons = not_drawn(measured, is_comparison=False)
    assert reasons == ["Not drawn: banana, CRPS against n: no result has it."]


def test_where_takes_several_terms_and_then_figures(run, capsys):
    assert run("--by", "method=elbo", "seed=1", "class-log") == 0
    assert "method=elbo-seed=1" in capsys.readouterr().out
