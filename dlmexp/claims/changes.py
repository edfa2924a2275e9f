"""What depends on the protocol: verdicts, and the parts behind them."""

from collections.abc import Iterator
from typing import NamedTuple

from dlmexp.claims.judge import PAPER, STAND_IN, Judgement
from dlmexp.claims.rules import Verdict, combine
from dlmexp.console import counted

Judged = dict[str, list[Judgement]]  # protocol -> every claim
Part = tuple[str, str, str | None]  # dataset, sentence, parameterisation of q (None: each protocol's own)


class Said(NamedTuple):
    """What a protocol says about a part, and at how many sizes."""

    verdict: Verdict
    sizes: int


ByProtocol = dict[str, Said]
MOST_PARTS = 6  # in one sentence


def claim_by_claim(judged: Judged) -> list[dict[str, Judgement]]:
    """For each claim, its judgement under every protocol."""
    return [dict(zip(judged, several, strict=True)) for several in zip(*judged.values(), strict=True)]


def number_of(under: dict[str, Judgement]) -> int:
    return next(iter(under.values())).claim.number


def without(under: dict[str, Judgement], name: str, basis: str) -> str:
    """What a claim is judged on under other protocols and not under this one: `pol`, or `cadata at n = 13829` where the
    dataset was run at other sizes. '' where nothing is lacking, or all."""
    here = under[name].run_at(basis)
    anywhere: dict[str, set[int]] = {}
    for one in under.values():
        for dataset, sizes in one.run_at(basis).items():
            anywhere.setdefault(dataset, set()).update(sizes)
    datasets = [dataset for dataset in anywhere if here and dataset not in here]
    at_sizes = [
        f"{dataset} at n = {', '.join(map(str, sorted(lacking)))}"
        for dataset, sizes in here.items()
        if (lacking := anywhere[dataset] - sizes)
    ]
    return "; ".join(filter(None, [", ".join(datasets), *at_sizes]))


def verdict_on(under: dict[str, Judgement], name: str, basis: str) -> str:
    """`holds`, or `holds (without pol)` where other protocols have more data."""
    lacking = without(under, name, basis)
    return str(under[name].on(basis)) + (f" (without {lacking})" if lacking else "")


def changes(judged: Judged) -> list[str]:
    """What changes verdicts, in a sentence per claim: the protocol first, then how q is parameterised."""
    between = [f"{number_of(under)}. {text}" for under in claim_by_claim(judged) for text in protocol_changes(under)]
    if len(judged) > 1 and not between:
        between = ["No verdict depends on the protocol."]
    for name, judgements in judged.items():
        where = f" (protocol {name})" if len(judged) > 1 else ""
        between += [f"{one.claim.number}{where}. {text}" for one in judgements if (text := one.changes_with_q)]
    return between


def protocol_changes(under: dict[str, Judgement]) -> list[str]:
    """What changes a claim's verdict between protocols, and in which parts ([] where nothing does)."""
    said = []
    for basis in (PAPER, STAND_IN):
        run = {name: one for name, one in under.items() if one.on(basis) is not Verdict.NOT_RUN}
        if len({one.on(basis) for one in run.values()}) > 1:
            each = ", ".join(f"{verdict_on(under, name, basis)} under {name}" for name in run)
            parts = [_words(part, found) for part, found in _compared(run, basis) if _differs(found)]
            more = f"; and {len(parts) - MOST_PARTS} more" if len(parts) > MOST_PARTS else ""
            listed = f"they differ in: {'; '.join(parts[:MOST_PARTS])}{more}"
            said.append(f"On {basis}: {each}; {listed if parts else 'with the same q no part differs'}.")
    return said


def part_changes(judged: Judged) -> list[str]:
    """A count of the parts that several protocols judge, and those of them that differ, a line per claim. Parts that a
    protocol lacks are no difference."""
    total, lines, differing = 0, [], 0
    for under in claim_by_claim(judged):
        parts = []
        for basis in (PAPER, STAND_IN):
            for part, run in _compared(under, basis):
                total += len(run) > 1
                if _differs(run):
                    parts.append(_words(part, run))
        differing += len(parts)
        lines += [f"{number_of(under)}. {'; '.join(parts)}."] if parts else []
    count = f"{differing} of {counted(total, 'part')} that several protocols judge differ"
    said = f"{count}; they are compared with the same q, where protocols share one."
    return [said, *lines] if total else []


def _compared(under: dict[str, Judgement], basis: str) -> Iterator[tuple[Part, ByProtocol]]:
    """The parts of a claim, each with its verdict under every protocol that was run: with the same q, where two
    protocols share one; else with all that each of them has."""
    parts: dict[tuple[str, str], dict[str | None, ByProtocol]] = {}
    for name, one in under.items():
        for found in one.judged:
            if found.dataset and (found.stands_for is not None) == (basis == STAND_IN) and not found.ours:
                by_q = parts.setdefault((found.dataset, found.about), {})
                by_q.setdefault(found.parameterisation, {})[name] = Said(found.verdict, len(found.run_at))
    for (dataset, about), by_q in parts.items():
        shared = {how: run for how, run in by_q.items() if len(run) > 1}
        if not shared:
            yield (dataset, about, None), {name: _together(own) for name in under if (own := _of(name, by_q))}
        for how, run in shared.items():
            yield (dataset, about, how), run


def _of(name: str, by_q: dict[str | None, ByProtocol]) -> list[Said]:
    return [run[name] for run in by_q.values() if name in run]


def _together(several: list[Said]) -> Said:
    return Said(combine(one.verdict for one in several), max(one.sizes for one in several))


def _differs(run: ByProtocol) -> bool:
    return len({said.verdict for said in run.values()}) > 1


def _words(part: Part, run: ByProtocol) -> str:
    """With the numbers of sizes, where the protocols were not run at equally many."""
    dataset, about, how = part
    equally = len({said.sizes for said in run.values()}) == 1
    each = [
        f"{name} {said.verdict}" + ("" if equally else f" at {counted(said.sizes, 'size')}")
        for name, said in run.items()
    ]
    return f"{dataset}{f', q {how}' if how else ''}: {about} ({', '.join(each)})"
