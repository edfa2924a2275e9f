"""`dlmexp run`: passes Hydra's overrides and flags on, with error messages of one line."""

import argparse
import contextlib
import gc
import io
import logging
import re
import sys
from collections.abc import Sequence

from dlmexp.cli.folder import Commands
from dlmexp.errors import UserError, nearest

HELP = """\
Run a sweep: all combinations of dataset, size, seed, method, estimator and
beta in the config, trained in batches. Cells that are done are skipped and
interrupted ones resumed: the same command can be given again at any time.

examples:
  dlmexp run                              ringnorm, drawn from its definition
  dlmexp run experiment=reg-log           the cells of a figure
  dlmexp run dataset=csv csv.path=my.csv csv.target=price csv.task=regression
                                          one good model of your own table
  dlmexp run dataset=[pol,cadata] method=[elbo,fitc] seeds=2 sizes=['5%']
  dlmexp run experiment=class-log preset=quick      a small version, in minutes
  dlmexp run experiment=class-log plan=true         only show what would run
  dlmexp run experiment=paper budget=25min          what 25 minutes allow
  dlmexp run -m dataset=pol,cadata experiment=reg-log     several jobs; with
    hydra/launcher=local_parallel|slurm|slurm_gpu    at once, or on a cluster

settings (all of them: --cfg job):
  experiment=NAME  preset=quick|debug  protocol=paper|released|annealed|own
  dataset=[A,B]  method=[A,B]  estimator=[A,B]      what to combine
  beta=grid|short|0.1|[0.1,1]   sizes=[100,'50%']   seeds=5|[0,2]
  M=50  lengthscale=2  noise=0.5  training.lr=0.01  parameterisation=[all]
  csv.columns= drop= missing= log= test= ...        your table: data/README.md
  device=auto|cpu|cuda  workers=4  budget=25min  plan=true
  results=DIR  data_root=DIR  retry_failed=true
  keep=selected|all|none   models to keep, for 'dlmexp predict' and 'export'
  wait=false               leave once jobs are in the queue of the cluster

Hydra's flags work too: -m, --cfg job, --config-dir DIR, --info.
Shell completion of all commands: eval "$(dlmexp -sc install=bash)"; zsh, fish
exit code: 0 all done, 1 some cells failed, 2 an error in command or config,
           3 budget used up, 130 interrupted (both with everything saved)
"""
HYDRA_FLAGS = ("--multirun", "--cfg", "--config-dir", "--info", "--resolve", "--package", "--hydra-help")


def add_parser(commands: Commands) -> None:
    usage = "dlmexp run [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
    raw = argparse.RawDescriptionHelpFormatter
    commands.add_parser(
        "run", help="run a sweep (configured by Hydra)", description=HELP, formatter_class=raw, usage=usage
    )


def run(arguments: Sequence[str]) -> int:
    """Runs a sweep; `arguments` are overrides and flags of Hydra."""
    from hydra._internal.utils import get_args_parser
    from omegaconf import OmegaConf

    from dlmexp.plan.compose import check_table_is_used, compose, expand, launcher, plugins_in, with_default
    from dlmexp.plan.overrides import spelled_out
    from dlmexp.plugins import extended

    args = _parse(get_args_parser(), arguments)
    flags = [argument for argument in arguments if argument not in args.overrides]
    typed = spelled_out(args.overrides, bool(args.multirun))
    with extended(args.config_dir, plugins_in(typed)):
        overrides = with_default(typed)
        if args.hydra_help:
            return _through_hydra(flags, [])
        if not args.multirun and any(override.startswith("hydra/launcher=") for override in typed):
            raise UserError("hydra/launcher= is for the jobs of a multirun: add -m")
        expanded = expand(overrides) if args.multirun else [overrides]
        jobs = [compose(job) for job in expanded]  # first of all: errors are ours, of one line, and need no torch
        check_table_is_used(typed, jobs)
        if args.cfg == "job" and not args.package:
            print(OmegaConf.to_yaml(OmegaConf.structured(jobs[0])), end="")
            return 0
        if args.cfg or args.info:
            return _through_hydra(flags, overrides)
        if args.multirun:
            from dlmexp.cluster.multirun import multirun

            return multirun(jobs, expanded, launcher(expanded[0]))
        gc.disable()  # torch makes many objects that stay: no need to look through them again and again
        from dlmexp.data.options import TableProblems
        from dlmexp.running.run import execute

        gc.freeze()
        gc.enable()
        try:
            return execute(jobs[0], arguments, choose_workers=True)
        except TableProblems as problems:
            raise UserError(problems.with_command(["dlmexp", "run", *arguments])) from None


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses with Hydra's parser; its errors become UserErrors. Flags may come before, between and after overrides."""
    from dlmexp.plan.overrides import groups, settings

    for argument in arguments:
        name, equals, value = argument.lstrip("-").partition("=")
        dashed = argument.startswith("--") or (argument.startswith("-") and len(name) > 1 and equals)
        if not dashed or argument.split("=")[0] in HYDRA_FLAGS:
            continue
        if name in settings() or name in groups():
            typed = f"{name}={value or 'VALUE'}"
            raise UserError(f"unknown option '{argument}': settings are written without dashes, {typed}")
        raise UserError(f"unknown option '{argument}': {nearest(argument, sorted(HYDRA_FLAGS))}")
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return parser.parse_intermixed_args(list(arguments))
    except SystemExit:
        raise _unread(arguments, stderr.getvalue()) from None


def _through_hydra(flags: Sequence[str], overrides: Sequence[str]) -> int:
    """Calls Hydra with its own flags and with overrides, in the order that it expects. A failure of one that only
    prints something is a UserError."""
    import hydra

    from dlmexp.config import register
    from dlmexp.paths import conf_dir

    register()
    before, sys.argv = sys.argv, ["dlmexp", *overrides, *flags]
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level  # Hydra replaces both
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            hydra.main(config_path=str(conf_dir()), config_name="run", version_base="1.3")(lambda cfg: None)()
    except SystemExit as stop:
        if stop.code:
            raise _unread([*flags, *overrides], stderr.getvalue()) from None
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.argv = before
        root.handlers[:] = handlers
        root.setLevel(level)
    return 0


def _unread(arguments: Sequence[str], stderr: str) -> UserError:
    """Arguments that Hydra ends at, with what it said last: after `error:`, or the name of an exception."""
    reason = " ".join(re.split(r"(?m)^.*(?:error|Error|Exception): ", stderr)[-1].split())
    return UserError(f"can't read 'run {' '.join(arguments)}' ({reason}): see 'dlmexp run --help'")
