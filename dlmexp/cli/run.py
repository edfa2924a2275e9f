"""`dlmexp run`: composes the config of one job, or of those of a multirun, and runs them."""

import argparse
import gc

from dlmexp.cli import Commands, add_command
from dlmexp.errors import UserError, nearest

OPTIONS = ("--multirun", "--cfg", "--config-dir", "--plugins", "--help")


def add_parser(commands: Commands) -> None:
    usage = "dlmexp run [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
    add = add_command(commands, run, "run a sweep (configured by Hydra)", usage=usage).add_argument
    add("overrides", nargs="*", metavar="key=value", help="settings")
    add("-m", "--multirun", action="store_true", help="several jobs: values with commas between them")
    add("-c", "--cfg", choices=["job"], metavar="job", help="print the composed settings")


def run(args: argparse.Namespace) -> int:
    """
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
      experiment=NAME  preset=quick|debug  protocol=paper|released|annealed|own
      dataset=[A,B]  method=[A,B]  estimator=[A,B]      what to combine
      beta=grid|short|0.1|[0.1,1]   sizes=[100,'50%']   seeds=5|[0,2]
      M=50  lengthscale=2  noise=0.5  training.lr=0.01  parameterisation=[all]
      csv.columns= drop= missing= log= test= ...        your table: data/README.md
      device=auto|cpu|cuda  workers=4  budget=25min  plan=true
      results=DIR  data_root=DIR  retry_failed=true
      keep=selected|all|none   models to keep, for 'dlmexp predict' and 'export'
      wait=false               leave once jobs are in the queue of the cluster

    Shell completion of all commands: eval "$(dlmexp -sc install=bash)"; zsh, fish
    exit code: 0 all done, 1 some cells failed, 2 an error in command or config,
               3 budget used up, 130 interrupted (both with everything saved)
    """
    from omegaconf import OmegaConf

    from dlmexp.paths import extended
    from dlmexp.plan.compose import check_table_is_used, compose, expand, launcher, plugins_in, with_default
    from dlmexp.plan.overrides import groups, settings, spelled_out

    for word in args.overrides:
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith("-"):
            setting = name in settings() or name in groups()
            meant = f"settings are written without dashes, {name}={value or 'VALUE'}"
            raise UserError(f"unknown option '{word}': {meant if setting else nearest(word, [*OPTIONS])}")
    typed = spelled_out(args.overrides, args.multirun)
    with extended(None, plugins_in(typed)):
        overrides = with_default(typed)
        if not args.multirun and any(override.startswith("hydra/launcher=") for override in typed):
            raise UserError("hydra/launcher= is for the jobs of a multirun: add -m")
        expanded = expand(overrides) if args.multirun else [overrides]
        jobs = [compose(job) for job in expanded]  # first of all: errors are ours, of one line, and need no torch
        check_table_is_used(typed, jobs)
        if args.cfg:
            print(OmegaConf.to_yaml(OmegaConf.structured(jobs[0])), end="")
            return 0
        if args.multirun:
            from dlmexp.cluster.multirun import multirun

            return multirun(jobs, expanded, launcher(expanded[0]))
        gc.disable()  # torch makes many objects that stay: no need to look through them again and again
        from dlmexp.running.run import execute

        gc.freeze()
        gc.enable()
        return execute(jobs[0], args.typed, choose_workers=True)
