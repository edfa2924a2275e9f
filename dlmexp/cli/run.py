"""`dlmexp run` trains models, in one job or in the jobs of a multirun."""

import argparse
import gc
import logging
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, Parser, add_command
from dlmexp.common.catalogue import names
from dlmexp.common.errors import UserError
from dlmexp.common.extensions import use_extensions

if TYPE_CHECKING:
    from dlmexp.experiment.config import RunConfig

METHODS_WIDTH = 72  # characters per line of the names of methods in the help text
USAGE = "dlmexp run [key=value ...] [-m] [--cfg job] [--info] [--config-dir DIR]"
# Flags of Hydra that this command refuses, with what takes their place.
REFUSED_FLAGS = {
    "config_name": "--config-name: there is one config; experiment=NAME chooses settings of it",
    "config_path": "--config-path: --config-dir DIR adds a conf folder of your own",
    "rerun": "--experimental-rerun: give the same command again; it goes on where the run stopped",
    "hydra_help": "--hydra-help: --info shows what Hydra has found, --cfg hydra shows its settings",
    "shell_completion": '--shell-completion: eval "$(register-python-argcomplete dlmexp)"',
}
DESCRIPTION = """
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
        hydra/launcher=slurm|slurm_gpu                   on a cluster

    settings (all of them: --cfg job):
      experiment=NAME  preset=quick|debug  protocol=paper|released|annealed|own|uci
      dataset=[A,B]  method=[A,B]  estimator=[A,B]      what to combine
      beta=grid|short|0.1|[0.1,1]   sizes=[100,'50%']   seeds=5|[0,2]
      cv=5|holdout|loo|auto    select beta by folds, then train on all rows
      M=50|auto  K=[1,4]  kernel=rbf  ard=true  likelihood=student_t
      auto_M.tolerance=0.1  auto_M.most=200             how M=auto chooses
      lengthscale=2|sqrt|median  inducing=first|kmeans|greedy  noise=0.5
      mean=constant  validation=tenth  parameterisation=[all]
      training.lr=0.01  training.optimizer=adam|lbfgs  training.restarts=3
      method.t_pep.options.alpha=0.2
      csv.columns= drop= missing= log= test= ...        your table: data/README.md
      device=auto|cpu|cuda  workers=4  budget=25min  plan=true
      results=DIR  data_root=DIR  retry_failed=true  rerun=changed
      keep=selected|all|none   models to keep, for 'dlmexp predict' and 'export'
      wait=false               leave once jobs are in the queue of the cluster

    methods:
      {methods}

    Shell completion of all commands: eval "$(register-python-argcomplete dlmexp)"
    exit code: 0 all done, 1 some cells failed, 2 an error in command or config,
               3 budget used up, 130 interrupted (both with everything saved)
    """


def add_commands(commands: Commands) -> None:
    """Add `run`."""
    parser = add_command(
        commands,
        "run",
        run,
        summary="run a sweep (configured by Hydra)",
        description=DESCRIPTION.format(methods=_method_names()),
        lines_as_written=True,
        usage=USAGE,
    )
    parser.takes_settings = True
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings")
    parser.add_argument(
        "-m",
        "--multirun",
        action="store_true",
        help="several jobs: values with commas between them",
    )
    parser.add_argument(
        "-c",
        "--cfg",
        choices=["job", "hydra", "all"],
        metavar="job|hydra|all",
        help="print the composed settings: ours (job), those of Hydra, or all as Hydra sees them",
    )
    parser.add_argument("--package", metavar="NAME", help="with --cfg: print only this part")
    parser.add_argument(
        "--resolve", action="store_true", help="with --cfg: print the values of ${...}"
    )
    parser.add_argument(
        "--info",
        nargs="?",
        const="all",
        choices=["all", "defaults", "defaults-tree", "config", "plugins", "searchpath"],
        metavar="WHAT",
        help="print what Hydra has found: plugins, folders of settings, defaults",
    )
    _add_hidden_flags(parser)


def _add_hidden_flags(parser: Parser) -> None:
    """Add flags of Hydra that the help text does not show.

    `--run` is accepted and has no effect; `-cd` is `--config-dir`; all other flags are refused with
    a message (`REFUSED_FLAGS`).
    """
    hidden = argparse.SUPPRESS
    parser.add_argument("--run", action="store_true", dest="single", help=hidden)
    parser.add_argument("-cd", dest="config_dir", default=argparse.SUPPRESS, help=hidden)
    parser.add_argument("-cn", "--config-name", dest="config_name", help=hidden)
    parser.add_argument("-cp", "--config-path", dest="config_path", help=hidden)
    parser.add_argument("--experimental-rerun", dest="rerun", help=hidden)
    parser.add_argument("--hydra-help", action="store_true", help=hidden)
    parser.add_argument("-sc", "--shell-completion", action="store_true", help=hidden)


def _method_names() -> str:
    """Return the names of all methods in lines that fit into the description."""
    method_names = " ".join(names("method"))
    lines = textwrap.wrap(method_names, METHODS_WIDTH)
    return "\n      ".join(lines)


def run(args: argparse.Namespace) -> int:
    """Run one job here, or several by a launcher; return the exit code."""
    from dlmexp.experiment.plan.compose import hydra_settings, plugins_in, with_default_experiment
    from dlmexp.experiment.plan.overrides import check_hydra_words, expand_shorthand

    _refuse_flags(args)
    typed = expand_shorthand(args.overrides, args.multirun)
    with use_extensions(plugins=plugins_in(typed)):
        check_hydra_words(typed, args.multirun)
        if args.info or args.cfg in ("hydra", "all"):
            _print_by_hydra(args, with_default_experiment(typed))
            return 0
        hydra = hydra_settings(typed)
        overrides: list[list[str]] = []
        jobs: list[RunConfig] = []
        if not hydra.has_own_sweeper:
            overrides, jobs = _composed_jobs(typed, args.multirun)
        if args.cfg:
            _print_settings(jobs[0], args.package)
            return 0
        if hydra.is_foreign:
            from dlmexp.experiment.cluster.hydra_jobs import run_by_hydra

            return run_by_hydra(with_default_experiment(typed), hydra, args.multirun)
        if args.multirun:
            from dlmexp.experiment.cluster.multirun import multirun
            from dlmexp.experiment.plan.compose import launcher_settings

            return multirun(jobs, overrides, launcher_settings(overrides[0]))
        return _run_here(jobs[0], args.typed)


def _refuse_flags(args: argparse.Namespace) -> None:
    for name, message in REFUSED_FLAGS.items():
        if getattr(args, name):
            raise UserError(message)


def _print_by_hydra(args: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Print plugins, folders or settings with Hydra's own functions."""
    from dlmexp.experiment.plan.compose import hydra_initialized
    from dlmexp.experiment.plan.overrides import hydra_errors_as_user_errors

    with hydra_errors_as_user_errors(overrides), hydra_initialized() as hydra:
        if args.info:
            # Hydra prints through a handler that it adds to the root logger, and leaves there.
            handlers = logging.root.handlers[:]
            hydra.show_info(args.info, "run", list(overrides))
            logging.root.handlers[:] = handlers
        else:
            hydra.show_cfg("run", list(overrides), args.cfg, args.package, args.resolve)


def _composed_jobs(
    typed: Sequence[str], multirun: bool
) -> tuple[list[list[str]], list["RunConfig"]]:
    """Return the overrides and the config of each job.

    All jobs are composed before the first one runs, so that mistakes in any of them are reported
    at once, before torch is imported.
    """
    from dlmexp.experiment.plan.compose import (
        check_table_is_used,
        compose,
        expand,
        with_default_experiment,
    )

    overrides = with_default_experiment(typed)
    overrides_of_jobs = expand(overrides) if multirun else [overrides]
    jobs = [compose(words) for words in overrides_of_jobs]
    check_table_is_used(typed, jobs)
    return overrides_of_jobs, jobs


def _print_settings(job: "RunConfig", package: str | None) -> None:
    """Print the settings of a job, or a part of them."""
    from omegaconf import Container, OmegaConf

    settings = OmegaConf.structured(job)
    part = OmegaConf.select(settings, package) if package else settings
    if part is None:
        raise UserError(f"--package {package}: the settings have no such part")
    if isinstance(part, Container):
        print(OmegaConf.to_yaml(part), end="")
    else:
        print(part)  # a single value


def _run_here(job: "RunConfig", typed: Sequence[str]) -> int:
    """Run one job in this process; return the exit code."""
    # Importing torch makes many objects that live to the end of the process. The import is faster
    # while the garbage collector is off, and later collections skip frozen objects.
    gc.disable()
    from dlmexp.experiment.running.run import execute

    gc.freeze()
    gc.enable()
    return execute(job, typed, choose_workers=True)
