"""`dlmexp run`: Hydra's words, our sentences."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from dlmexp.errors import UserError

DESCRIPTION = """\
Run a sweep: every dataset, size, seed, method, estimator and beta of the composed config, trained in batches.
What is done is skipped, what was interrupted goes on, so the same command can be given again at any time.
"""

EXAMPLES = """\
examples:
  dlmexp run                                             ringnorm drawn from its definition, about a minute
  dlmexp run experiment=reg-log                          the cells of a figure (see conf/experiment)
  dlmexp run dataset=[pol,cadata] method=[elbo,joint_log_dlm] seeds=[0,1] sizes=['5%']
  dlmexp run dataset=csv csv.path=my.csv csv.target=price csv.task=regression
  dlmexp run experiment=class-log plan=true              what it would run, and what is done already
  dlmexp run experiment=reg-log --cfg job                the composed config
  dlmexp run experiment=paper budget=25min               the whole paper, as far as its data is at hand
  dlmexp run -m dataset=pol,cadata experiment=reg-log    several jobs, one after another or through a launcher:
     ... hydra/launcher=local_parallel | slurm | slurm_gpu      side by side here, or on a cluster (docs/CLUSTER.md)

settings most often used (all of them: --cfg job):
  experiment=NAME          a figure's whole grid
  dataset=[A,B] method=[A,B] estimator=[A,B]   what to combine
  protocol=paper | protocol=released | protocol=converged      how cells are trained (conf/protocol)
  beta=grid | beta=short | beta=list beta.values=[0.1,1,10]
  sizes=[100,500] or sizes=['5%'], seeds=[0,1,2]
  parameterisation=[whitened,unwhitened]
  device=auto|cpu|cuda     data_root=DIR     results=DIR     retry_failed=true     plan=true
  workers=4                processes that share the work (a GPU is rarely full with one)
  wait=false               leave once the jobs are in a cluster's queue
  budget=25min             stop in time, everything saved, with exit code 3

Hydra's own flags work too: --multirun/-m, --cfg job, --config-dir DIR (your own conf folder), --info.
Shell completion: eval "$(dlmexp run -sc install=bash)"
exit code: 0 all done, 1 some cells failed, 2 a mistake in what was typed,
           3 budget spent, 130 interrupted (both with everything saved)
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    commands.add_parser(
        "run",
        help="run a sweep (configured by Hydra)",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="dlmexp run [key=value ...] [-m] [--cfg job] [--config-dir DIR]",
    )


def run(arguments: Sequence[str]) -> int:
    """`arguments` are Hydra's: overrides and its flags."""
    from hydra._internal.utils import get_args_parser

    from dlmexp.plan.compose import plugins_in
    from dlmexp.plugins import extended

    args = _refusing_unknown(get_args_parser(), arguments)
    with extended(args.config_dir, plugins_in(args.overrides)):
        return _run(arguments, args)


def _run(arguments: Sequence[str], args: argparse.Namespace) -> int:
    from dlmexp.plan.compose import check_table_is_used, compose, expand, launcher, with_default

    overrides = with_default(args.overrides)
    if args.hydra_help:
        return _through_hydra(arguments, args.overrides)
    if args.cfg or args.info:
        compose(overrides)  # for the sentence, should something be wrong
    if args.shell_completion or args.cfg or args.info:
        return _through_hydra(arguments, overrides)
    if not args.multirun and any(word.startswith("hydra/launcher=") for word in args.overrides):
        raise UserError("hydra/launcher= starts the jobs of a multirun: add -m")
    if args.multirun:
        from dlmexp.cluster.multirun import multirun

        expanded = expand(overrides)
        jobs = [compose(job) for job in expanded]
        check_table_is_used(args.overrides, jobs)
        return multirun(jobs, launcher(expanded[0]), lambda task: _through_hydra(arguments, overrides, task))
    from dlmexp.running.run import execute

    cfg = compose(overrides)
    check_table_is_used(args.overrides, [cfg])
    return execute(cfg, arguments)


def _refusing_unknown(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's own parser, whose complaint becomes our sentence; flags may stand anywhere among the overrides."""
    for word in arguments:
        if word.startswith("--") and word.split("=")[0] not in _HYDRA_FLAGS:
            from dlmexp.errors import nearest

            raise UserError(f"unknown option '{word}': {nearest(word, sorted(_HYDRA_FLAGS))}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser.parse_intermixed_args(list(arguments))
    except SystemExit:
        why = said.getvalue().strip().rpartition("error: ")[2]
        raise UserError(f"can't read 'run {' '.join(arguments)}' ({why}): see 'dlmexp run --help'") from None


_HYDRA_FLAGS = {
    "--multirun", "--cfg", "--config-dir", "--info", "--shell-completion", "--resolve", "--package", "--hydra-help",
}  # fmt: skip


def _no_task(cfg: object) -> None:
    """For Hydra's flags that only show something."""


def _through_hydra(arguments: Sequence[str], overrides: Sequence[str], task: Callable[..., object] = _no_task) -> int:
    """Hand over to Hydra, with the default job added if need be; overrides behind the flags, as it wants them."""
    import hydra

    from dlmexp.config import register
    from dlmexp.paths import conf_dir

    register()
    flags = [word for word in arguments if word not in overrides]
    completing = any(word.startswith(("-sc", "--shell-completion")) for word in arguments)
    if completing and "COMP_LINE" in os.environ:
        os.environ["COMP_LINE"] = os.environ["COMP_LINE"].replace(" run ", " ", 1)
    before, sys.argv = sys.argv, ["dlmexp", *(arguments if completing else [*flags, *overrides])]
    try:
        hydra.main(config_path=str(conf_dir()), config_name="run", version_base="1.3")(task)()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.argv = before
    return 0
