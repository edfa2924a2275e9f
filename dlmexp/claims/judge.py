"""All claims held against one results folder, under every protocol that was run."""

from dataclasses import dataclass, field

from dlmexp import catalogue
from dlmexp.claims.finding import CLAIMS, Claim, Finding
from dlmexp.claims.rules import Verdict, combine
from dlmexp.config import PARAMETERISATIONS
from dlmexp.records.results import Results
from dlmexp.records.selection import Choice
from dlmexp.records.settings import PLAIN, PROTOCOLS, Setting, experiment_of, kind_of, run_words, training_of
from dlmexp.records.wanted import ANY, Wanted, check_at_hand, has

PAPER, STAND_IN = "the paper's data", "stand-in data"
NO_DATA = "no data needed"
ONE_Q = "one"  # in place of a parameterisation, where no dataset has more than one
Options = dict[str | None, set[str]]  # dataset -> the parameterisations of q that it is judged under


@dataclass
class Judgement:
    """A claim with everything found about it. `verdict` is that on the paper's data, where there is one."""

    claim: Claim
    findings: list[Finding]
    by_basis: dict[str, dict[str, Verdict]]  # basis -> parameterisation (or ONE_Q) -> verdict
    options: Options
    results: Results  # ... that it was judged by, and their setting
    setting: Setting = PLAIN
    other_q: list[Finding] = field(default_factory=list)  # run with a parameterisation of q that is not the protocol's

    def on(self, basis: str) -> Verdict:
        """On the paper's data, or on stand-ins; what both parameterisations say, else mixed."""
        return combine(self.by_basis[basis].values())

    @property
    def basis(self) -> str:
        """What the verdict rests on."""
        if all(found.dataset is None for found in self.findings) and self.findings:
            return NO_DATA
        return PAPER if self.on(PAPER) is not Verdict.NOT_RUN or self.on(STAND_IN) is Verdict.NOT_RUN else STAND_IN

    @property
    def verdict(self) -> Verdict:
        return self.on(STAND_IN if self.basis == STAND_IN else PAPER)

    @property
    def judged(self) -> list[Finding]:
        return [found for found in self.findings if found.verdict is not Verdict.NOT_RUN]

    @property
    def data(self) -> list[str]:
        """What it was judged on, stand-ins labelled as such."""
        return [catalogue.labelled(name) for name in _datasets(self.judged)]

    def run_at(self, basis: str) -> dict[str, frozenset[int]]:
        """The datasets of the paper, or the stand-ins, that it was judged on, each with its sizes."""
        here = _on(self.judged, basis)
        return {
            name: frozenset().union(*(found.run_at for found in here if found.dataset == name and not found.ours))
            for name in _datasets(here)
        }

    @property
    def repetitions(self) -> tuple[int, int]:
        """Fewest and most repetitions behind a judged part."""
        counts = [found.repetitions for found in self.judged if found.dataset and not found.ours]
        return (min(counts), max(counts)) if counts else (0, 0)

    @property
    def commands(self) -> list[str]:
        """What made the records; given again, it goes on with their folder."""
        return [*map(self.results.command, dict.fromkeys(one for found in self.judged for one in found.commands))]

    @property
    def missing(self) -> list[str]:
        """What would compute the parts that were not run on the paper's data."""
        done = {found.dataset for found in self.judged}
        commands: dict[str, None] = {}
        for found in self.findings:
            if found.verdict is Verdict.NOT_RUN and found.dataset and found.stands_for is None:
                # Some experiments run one q alone: the other is an override away.
                other_q = found.dataset in done and len(self.options[found.dataset]) > 1
                how = f" parameterisation=[{found.parameterisation}]" if other_q else ""
                commands |= dict.fromkeys(command + how for command in self._commands_for(found.dataset))
        return [*map(self.results.command, commands)]

    def _commands_for(self, dataset: str) -> list[str]:
        fitting = [name for name in self.claim.experiments if dataset in catalogue.selected_in(name, "dataset", [])]
        kind = _kind(dataset)
        return [catalogue.run_command(name, dataset) + run_words(self.setting, name, dataset, kind) for name in fitting]

    @property
    def difference(self) -> str:
        """In words: whether it matters how q is parameterised ('' where the question does not arise)."""
        return " ".join(filter(None, map(self._difference, self.by_basis)))

    @property
    def changes_with_q(self) -> str:
        """The same, only for the kind of data on which the verdict does depend on it."""
        changing = (basis for basis, under in self.by_basis.items() if len({*under.values()} - {Verdict.NOT_RUN}) > 1)
        return " ".join(map(self._difference, changing))

    def _difference(self, basis: str) -> str:
        run = {how: verdict for how, verdict in self.by_basis[basis].items() if verdict is not Verdict.NOT_RUN}
        where = f"On {basis}: "
        if not run or not any(len(self.options[found.dataset]) > 1 for found in _on(self.judged, basis)):
            return ""
        if len(run) == 1:
            (how,) = run
            other = next(name for name in PARAMETERISATIONS if name != how)
            return f"{where}only the {how} q was run, not the {other}."
        parts = _differing(_on(self.findings, basis))
        if len(set(run.values())) == 1 and not parts:
            return f"{where}the same under both parameterisations of q, in every part."
        says = ", ".join(f"{verdict} with q {how}" for how, verdict in run.items())
        return f"{where}{says}" + (f"; they differ in: {'; '.join(parts)}." if parts else ".")


def _on(findings: list[Finding], basis: str) -> list[Finding]:
    return [found for found in findings if (found.stands_for is not None) == (basis == STAND_IN)]


def _datasets(findings: list[Finding]) -> list[str]:
    return list(dict.fromkeys(found.dataset for found in findings if found.dataset and not found.ours))


def _differing(findings: list[Finding]) -> list[str]:
    """Parts whose verdict depends on the parameterisation, with the differences measured under each."""
    parts: dict[tuple[str | None, str], dict[str, Finding]] = {}
    for found in findings:
        if found.parameterisation and found.verdict is not Verdict.NOT_RUN:
            parts.setdefault((found.dataset, found.about), {})[found.parameterisation] = found
    said = []
    for (dataset, about), both in parts.items():
        if len({found.verdict for found in both.values()}) > 1:
            each = ", ".join(f"{how}: {found.verdict}{_by(found)}" for how, found in both.items())
            said.append(f"{dataset}: {about} [{each}]")
    return said


def _by(found: Finding) -> str:
    return f" ({found.deciding.comparison.sign})" if found.deciding else ""


def claims() -> list[Claim]:
    """All claims in the order of their numbers."""
    return sorted((CLAIMS[name] for name in CLAIMS), key=lambda claim: claim.number)


def judge(results: Results, setting: Setting = PLAIN) -> list[Judgement]:
    """Every claim with its verdict, on records of one setting."""
    return [judge_one(claim, results, setting) for claim in claims()]


def judge_protocols(results: Results, wanted: Wanted = ANY) -> dict[str, list[Judgement]]:
    """Every claim with its verdict under each protocol that was run, or under those that are wanted. Where values of a
    protocol were changed, that is a column of its own: `paper, lr=0.01`."""
    check_at_hand(results.settings, results.choices, wanted)
    return {name: judge(some, setting) for name, (setting, some) in by_setting(results, wanted).items()}


def by_setting(results: Results, wanted: Wanted = ANY) -> dict[str, tuple[Setting, Results]]:
    """By name, each protocol and each changed one with its results; a record may serve several. What an experiment that
    no claim names changes in a protocol is a column only if asked for, or if the unchanged protocol was not run."""
    columns: dict[str, Setting] = {}
    beside: set[str] = set()
    choices: dict[str, list[Choice]] = {}
    for at_hand in results.at_hand.values():
        for setting, several in at_hand.items():
            if has(results.settings, setting, several, wanted):
                name = _column(setting, several[0])
                columns.setdefault(name, Setting(name) if name == setting.protocol else setting)
                choices.setdefault(name, []).extend(several)
                if _unclaimed(experiment_of(setting, several[0])):
                    beside.add(name)
    if not wanted.where:
        beside = {name for name in beside if columns[name].protocol in choices}
        choices = {name: several for name, several in choices.items() if name not in beside}
    if len(choices) < 2 and wanted == ANY and not beside:
        return {name: (columns.get(name, PLAIN), results) for name in choices or (PROTOCOLS[0],)}
    ranks = {name: rank for rank, name in enumerate(PROTOCOLS)}
    ordered = sorted(choices, key=lambda name: (ranks.get(p := columns[name].protocol, len(ranks)), p, name))
    return {name: (columns[name], results.keeping(choices[name])) for name in ordered}


def _column(setting: Setting, one: Choice) -> str:
    """The protocol's name where the records are what it asks for, or what an experiment that some claim names makes of
    it; otherwise what is different is in the name."""
    experiment = experiment_of(setting, one)
    if experiment is None:
        return setting.label
    return f"{setting.protocol}, experiment={experiment}" if _unclaimed(experiment) else setting.protocol


def _unclaimed(experiment: str | None) -> bool:
    """Whether it is an experiment that no claim is judged by, such as `anatomy`."""
    return bool(experiment) and experiment not in {name for claim in claims() for name in claim.experiments}


def judge_one(claim: Claim, results: Results, setting: Setting = PLAIN) -> Judgement:
    """A dataset that has one parameterisation of q, as all of regression has, counts under either."""
    found = list(claim.judge(results))
    options = _options(found, setting.protocol)
    findings, other_q = [], []
    for one in found:
        if not one.parameterisation or one.parameterisation in options[one.dataset]:
            findings.append(one)
        elif one.verdict is not Verdict.NOT_RUN:
            other_q.append(one)
    both = any(len(some) > 1 for some in options.values())
    by_basis = {}
    for basis in (PAPER, STAND_IN):
        here = [one for one in _on(findings, basis) if not one.ours]
        under = {how: _under(how, here, options) for how in PARAMETERISATIONS} if both else {ONE_Q: here}
        by_basis[basis] = {how: claim.sum_up(several) if several else Verdict.NOT_RUN for how, several in under.items()}
    return Judgement(claim, findings, by_basis, options, results, setting, other_q)


def _options(findings: list[Finding], protocol: str) -> Options:
    """For each dataset, the protocol's parameterisations of q. Others, as `anatomy` trains them, are not its own."""
    options: Options = {}
    for found in findings:
        some = options.setdefault(found.dataset, set())
        if found.dataset and found.parameterisation:
            some.update(training_of(Setting(protocol), _kind(found.dataset)).parameterisation)
    return options


def _under(how: str, findings: list[Finding], options: Options) -> list[Finding]:
    """The findings under one parameterisation, with those on datasets that do not have it; [] if none has it."""
    if not any(found.parameterisation == how and found.verdict is not Verdict.NOT_RUN for found in findings):
        return []
    return [found for found in findings if found.parameterisation == how or how not in options[found.dataset]]


def _kind(dataset: str) -> str:
    file = catalogue.datasets()[dataset]
    return kind_of(file["task"], file["split"])
