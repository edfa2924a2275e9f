"""Shell completion."""

import pytest
from argcomplete.finders import CompletionFinder

from dlmexp.cli.completion import known_values
from dlmexp.cli.parser import make_parser


def completions(line: str) -> set[str]:
    """Return what a shell offers for the last word of a line."""
    *words, last = ["dlmexp", *line.split(" ")]
    finder = CompletionFinder(make_parser(), default_completer=known_values)  # pyright: ignore[reportArgumentType]
    return {word.strip() for word in finder._get_completions(words, last, "'", None)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("st", {"status"}),
        ("status --", {"--failed", "--json"}),
        ("data fetch aba", {"abalone"}),
        ("plot --protocol re", {"released"}),
        ("run data", {"dataset=", "data_root="}),
        ("run experiment=class", {"experiment=class-log"}),
        ("run training.binary.cr", {"training.binary.criterion="}),
        ("run bet", {"beta="}),
        ("run hydra", {"hydra/launcher=", "hydra/sweeper="}),
        ("run -m hydra/launcher=", {"hydra/launcher=slurm", "hydra/launcher=slurm_gpu"}),
    ],
)
def test_names_are_completed(line, expected):
    assert completions(line) >= expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run dtype=", {"dtype=float64", "dtype=float32"}),
        ("run plan=", {"plan=true", "plan=false"}),
        ("run parameterisation=[unwhitened,w", {"parameterisation=[unwhitened,whitened"}),
        ("run evaluate=e", {"evaluate=end", "evaluate=epoch"}),
        ("run name=", set()),
    ],
)
def test_values_of_a_setting_are_those_that_it_allows(line, expected):
    assert completions(line) == expected


def test_last_name_of_a_list_is_completed():
    assert "dataset=[pol,cadata" in completions("run dataset=[pol,ca")


def test_inner_settings_are_offered_below_their_own_dot_only():
    assert "beta.first=" not in completions("run beta")
    assert "beta.first=" in completions("run beta.")


def test_installed_plugins_of_hydra_are_completed(tmp_path, monkeypatch):
    (tmp_path / "hydra_plugins" / "hydra_joblib_launcher").mkdir(parents=True)
    (tmp_path / "hydra_plugins" / "hydra_joblib_launcher" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert completions("run -m hydra/launcher=j") == {"hydra/launcher=joblib"}
