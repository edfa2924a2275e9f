"""`dlmexp run` trains models, in one job or in the jobs of a multirun."""

import argparse
import gc
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlmexp.cli.parser import Commands, add_command
from dlmexp.common.catalogue import names
from dlmexp.common.errors import UserError
from dlmexp.common.extensions import extended

if TYPE_CHECKING:
    from dlmexp.experiment.config import RunConfig

METHODS_WIDTH = 72  # letters of a line
USAGE = "dlmexp run [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
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
        "-c", "--cfg", choices=["job"], metavar="job", help="print the composed settings"
    )


def _method_names() -> str:
    """Return the names of all methods in lines that fit into the description."""
    names_of_methods = textwrap.wrap(" ".join(names("method")), METHODS_WIDTH)
    return "\n      ".join(names_of_methods)


def run(args: argparse.Namespace) -> int:
    """Run one job here, or several by a launcher; return the exit code."""
    from dlmexp.experiment.plan.compose import launcher, plugins_in
    from dlmexp.experiment.plan.overrides import expand_shorthand

    typed = expand_shorthand(args.overrides, args.multirun)
    with extended(plugins=plugins_in(typed)):
        overrides, jobs = _composed_jobs(typed, args.multirun)
        if args.cfg:
            _print_settings(jobs[0])
            return 0
        if args.multirun:
            from dlmexp.experiment.cluster.multirun import multirun

            return multirun(jobs, overrides, launcher(overrides[0]))
        return _run_here(jobs[0], args.typed)


def _composed_jobs(
    typed: Sequence[str], multirun: bool
) -> tuple[list[list[str]], list["RunConfig"]]:
    """Return the overrides and the config of each job.

    All jobs are composed before the first one runs: mistakes are reported at once, and need no
    torch.
    """
    from dlmexp.experiment.plan.compose import check_table_is_used, compose, expand, with_default

    if not multirun and any(override.startswith("hydra/launcher=") for override in typed):
        raise UserError("hydra/launcher= is for the jobs of a multirun: add -m")
    overrides = with_default(typed)
    overrides_of_jobs = expand(overrides) if multirun else [overrides]
    jobs = [compose(words) for words in overrides_of_jobs]
    check_table_is_used(typed, jobs)
    return overrides_of_jobs, jobs


def _print_settings(job: "RunConfig") -> None:
    from omegaconf import OmegaConf

    print(OmegaConf.to_yaml(OmegaConf.structured(job)), end="")


def _run_here(job: "RunConfig", typed: Sequence[str]) -> int:
    # Importing torch makes many objects that stay. Without the garbage collector it is faster, and
    # frozen objects are not looked through in later collections either.
    gc.disable()
    from dlmexp.experiment.running.run import execute

    gc.freeze()
    gc.enable()
    return execute(job, typed, choose_workers=True)
