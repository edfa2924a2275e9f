"""How true the estimate of a run is: what it says before it starts, compared with what it takes. The words are those of
`dlmexp run`; the results go to a temporary folder."""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from time import monotonic, process_time

from dlmexp.benchmark.measure import Measurement, print_all, print_device

WITHIN = 0.25
QUICK = {  # half a minute to a minute of one core each
    "class-log": (
        "experiment=class-log", "dataset=thyroid", "sizes=[100]", "seeds=[0]", "parameterisation=[whitened]",
    ),
    "reg-log": (
        "experiment=reg-log", "dataset=cadata", "sizes=['5%']", "seeds=[0]", "method=[beta_elbo,joint_log_dlm]",
        "beta=[100,200,400]",
    ),
    "count-log": (
        "experiment=count-log", "dataset=abalone", "sizes=[100]", "seeds=[0]", "beta=[1,10]",
        "parameterisation=[whitened]",
    ),
    "airline": ("experiment=airline", "dataset=flights", "sizes=[20000]", "seeds=[0]", "training.large.epochs=5"),
}  # fmt: skip
WHOLE = {
    "class-log": ("experiment=class-log",),
    "reg-log": ("experiment=reg-log", "dataset=cadata"),
    "count-log": ("experiment=count-log", "stand_ins=true"),
    "airline": ("experiment=airline", "dataset=flights"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if an estimate is not within its limit."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark estimate", description=__doc__)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME | WORD",
        help=f"{', '.join(QUICK)} (default: these four), or words as for `dlmexp run`",
    )
    parser.add_argument("--whole", action="store_true", help="the four as the paper has them, not small parts (a GPU)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument(
        "--cold", action="store_true", help="with nothing remembered of this device; default: with what is remembered"
    )
    args = parser.parse_args(argv)
    device = print_device(args.device)
    named = WHOLE if args.whole else QUICK
    own = [word for word in args.words if word not in named]
    if own and len(own) != len(args.words):
        parser.error(f"'{own[0]}': give some of {', '.join(named)}, or words as for `dlmexp run`")
    runs = {" ".join(own): tuple(own)} if own else {name: named[name] for name in args.words or named}
    met = [print_all(compared(name, words, device, args.cold)) for name, words in runs.items()]
    return 0 if all(met) else 1


def compared(name: str, words: Sequence[str], device: str, cold: bool = False) -> Iterator[Measurement]:
    """Run it from an empty folder. The time is that of training, as is the estimate's: not of loading the program."""
    import torch

    import dlmexp.running.run as run
    from dlmexp.plan.compose import compose
    from dlmexp.plan.shorthand import spelled_out

    seen: dict[str, float] = {}
    predicted = run.predicted

    def noted(*args, **kwargs):
        began = monotonic()
        found = predicted(*args, **kwargs)
        seen["trial"] = monotonic() - began
        if found is not None:
            seen.update(found.estimate._asdict(), load=found.measured.load, remembered=found.measured.remembered)
        seen["threads"] = torch.get_num_threads()
        seen["began"], seen["own"] = monotonic(), process_time()
        return found

    with tempfile.TemporaryDirectory() as folder, _cache(cold):
        run.predicted = noted
        try:
            arguments = spelled_out([*words, f"device={device}", f"results={folder}/results"])
            code = run.execute(compose(arguments), arguments, choose_workers=True)
        finally:
            run.predicted = predicted
        took, own = monotonic() - seen["began"], (process_time() - seen["own"]) / seen["threads"]
    if code > 1:
        raise SystemExit(code)
    if "likely" not in seen:
        print(f"{name}: too short for an estimate")
        return
    what = f"{name}, {'pace remembered' if seen['remembered'] else 'pace of a trial'}"
    yield Measurement(f"{what}: estimated", seen["likely"], "s")
    yield Measurement(f"{what}: least by its range", seen["low"], "s")
    yield Measurement(f"{what}: most by its range", seen["high"], "s")
    yield Measurement(f"{what}: seconds to estimate", seen["trial"], "s")
    yield Measurement(f"{what}: took", took, "s")
    if device == "cpu":
        yield Measurement(f"{what}: load of the machine, at the estimate", seen["load"], "x")
        yield Measurement(f"{what}: load of the machine, during the run", took / own, "x")
        yield Measurement(f"{what}: estimated / took, without load", seen["likely"] / seen["load"] / own, "x")
    error = 100 * abs(seen["likely"] / took - 1)
    yield Measurement(f"{what}: estimate off by", error, "%", 100 * WITHIN)


@contextlib.contextmanager
def _cache(cold: bool) -> Iterator[None]:
    """Nothing remembered, if it is to be cold; datasets in their caches are read from where they are."""
    if not cold:
        yield
        return
    before = os.environ.get("DLMEXP_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLMEXP_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("DLMEXP_CACHE")
            if before is not None:
                os.environ["DLMEXP_CACHE"] = before


if __name__ == "__main__":
    raise SystemExit(main())
