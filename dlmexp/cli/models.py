"""`dlmexp run` trains models, in one job or those of a multirun; `dlmexp predict` says what they
predict on new rows, and `dlmexp export` hands them on as files."""

import argparse
import gc
import sys
from pathlib import Path

from dlmexp.cli import Commands, add_command
from dlmexp.common.atomic import check_output
from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.common.extensions import extended

WHERE = """which model: method=, dataset=, n=, seed=, beta=, key=, or any other field of a cell (default: of all, the
one with the best validation NLL)"""


def add_parser(commands: Commands) -> None:
    usage = "dlmexp run [key=value ...] [-m] [--cfg job] [--config-dir DIR]"
    add = add_command(commands, run, "run a sweep (configured by Hydra)", usage=usage).add_argument
    add("overrides", nargs="*", metavar="key=value", help="settings")
    add(
        "-m",
        "--multirun",
        action="store_true",
        help="several jobs: values with commas between them",
    )
    add("-c", "--cfg", choices=["job"], metavar="job", help="print the composed settings")
    add = add_command(commands, predict, "predict on new rows with a trained model").add_argument
    add(
        "words",
        nargs="*",
        metavar="FILE",
        help="rows to predict on: .csv with a header, or .parquet",
    )
    add("--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=WHERE)
    add(
        "--out",
        default="-",
        metavar="FILE",
        help=".csv or .parquet; - (the default): CSV on standard output",
    )
    add(
        "--model",
        metavar="FILE",
        help="a model file: .npz of 'dlmexp export', or of a results folder",
    )
    add(
        "--seeds",
        choices=["all"],
        help="all: the equally weighted mixture of the models of all seeds",
    )
    add(
        "--interval",
        type=float,
        default=0.95,
        metavar="SHARE",
        help="of new observations in it (default: 0.95)",
    )
    usage = "dlmexp export [--results DIR] [KEY | --where FIELD=VALUE ...] FILE.npz"
    add = add_command(commands, export, "write a trained model as a file", usage=usage).add_argument
    add("words", nargs="*", metavar="[KEY] FILE", help="key of a cell, and the file to write")
    add("--where", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=WHERE)


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

    Shell completion of all commands: eval "$(register-python-argcomplete dlmexp)"
    exit code: 0 all done, 1 some cells failed, 2 an error in command or config,
               3 budget used up, 130 interrupted (both with everything saved)
    """
    from omegaconf import OmegaConf

    from dlmexp.experiment.plan.compose import (
        check_table_is_used,
        compose,
        expand,
        launcher,
        plugins_in,
        with_default,
    )
    from dlmexp.experiment.plan.overrides import spelled_out

    typed = spelled_out(args.overrides, args.multirun)
    with extended(None, plugins_in(typed)):
        overrides = with_default(typed)
        if not args.multirun and any(override.startswith("hydra/launcher=") for override in typed):
            raise UserError("hydra/launcher= is for the jobs of a multirun: add -m")
        expanded = expand(overrides) if args.multirun else [overrides]
        jobs = [
            compose(job) for job in expanded
        ]  # first of all: errors are ours, of one line, and need no torch
        check_table_is_used(typed, jobs)
        if args.cfg:
            print(OmegaConf.to_yaml(OmegaConf.structured(jobs[0])), end="")
            return 0
        if args.multirun:
            from dlmexp.experiment.cluster.multirun import multirun

            return multirun(jobs, expanded, launcher(expanded[0]))
        # torch makes many objects that stay: no need to look through them again and again
        gc.disable()
        from dlmexp.experiment.running.run import execute

        gc.freeze()
        gc.enable()
        return execute(jobs[0], args.typed, choose_workers=True)


def _terms_and_words(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Terms of --where, and all other words: those that follow its last term are not
    field=value."""
    count = next((i for i, term in enumerate(args.where) if "=" not in term), len(args.where))
    return args.where[:count], [*args.words, *args.where[count:]]


def predict(args: argparse.Namespace) -> None:
    """
    Predicts on the rows of a CSV or Parquet file with a model that 'dlmexp run'
    has trained and kept. Writes the columns of that file and beside them, in the
    units and labels of the training data:
      regression, counts   mean, std, lower_95, upper_95 (the ends of the central
                           95 % interval of a new observation; see --interval)
      binary data          label, and a probability for each of the two labels
    Square-loss methods predict a mean only.

    The columns may be in any order. A missing column, a text that training has
    not seen and a value that is infinite end the command with exit code 2, naming
    row and column (rows are counted from 1 after the header), and no file is
    written; so does a missing value, unless the model was trained with
    csv.missing=mean or level. Rows are read in pieces: files may be larger than
    memory.

    examples:
      dlmexp predict new.csv --out predictions.csv
      dlmexp predict new.csv --model houses.npz --interval 0.8
      dlmexp predict new.parquet --where dataset=houses method=elbo --out p.parquet
      dlmexp predict new.csv --seeds all > p.csv     the mixture over all seeds
    """
    from dlmexp.experiment.models.file import choose_models, load_file
    from dlmexp.experiment.models.predictor import Predictor, open_rows, predict_file
    from dlmexp.experiment.records.results import ResultsFolder

    where, words = _terms_and_words(args)
    if len(words) != 1:
        raise UserError(
            "name one file to predict on: dlmexp predict FILE [--where FIELD=VALUE ...]"
        )
    file = Path(words[0])
    if args.out != "-":
        check_output(Path(args.out), f"--out {args.out}", (".csv", ".parquet"))
        if Path(args.out).exists() and Path(args.out).resolve() == file.resolve():
            raise UserError(f"--out {args.out} is the file to predict on: name another one")
    if args.model and (where or args.seeds):
        raise UserError("--model names the file of one model: leave --where and --seeds out")
    if not 0 < args.interval < 1:
        raise UserError(f"--interval {args.interval:g}: give a share between 0 and 1, such as 0.8")
    if args.model:
        models = [load_file(Path(args.model))]
        said = [f"{args.model} ({models[0].cell.describe()})"]
    else:
        chosen = choose_models(ResultsFolder(args.results), where, args.seeds == "all")
        models, said = [each.model for each in chosen], [each.words for each in chosen]
    open_rows(file, models[0].schema)  # mistakes first
    for text in said:
        print(f"model {text}", file=sys.stderr)
    predictor = Predictor(models)
    if not predictor.has_distribution:
        print("square loss predicts a mean only: there is no interval", file=sys.stderr)
    count, gaps = predict_file(predictor, file, args.out, args.interval)
    if filled := ", ".join(f"{name} {number}" for name, number in gaps.items() if number):
        print(f"missing values, taken as in training: {filled}", file=sys.stderr)
    print(
        f"{counted(count, 'row')} predicted{'' if args.out == '-' else f' to {args.out}'}",
        file=sys.stderr,
    )


def export(args: argparse.Namespace) -> None:
    """
    Writes a trained model as a file to hand on. FILE.npz is for 'dlmexp predict
    --model FILE.npz' in any environment. FILE.pt is a GPyTorch ApproximateGP with
    its likelihood, and beside it FILE.py, which loads it, encodes raw tables, and
    needs no dlmexp. Both hold what the columns of tables are.

    examples:
      dlmexp export houses.npz                    the model with the best
                                                  validation NLL
      dlmexp export 34682969d5fc model.pt         the model of one cell, by the
                                                  start of its key
      dlmexp export --where dataset=houses method=elbo model.pt
    """
    from dlmexp.experiment.models.file import choose_models
    from dlmexp.experiment.records.results import ResultsFolder

    where, words = _terms_and_words(args)
    if not 1 <= len(words) <= 2:
        raise UserError(
            "name the file to write: dlmexp export [KEY | --where FIELD=VALUE ...] model.npz"
        )
    *key, out = words
    (chosen,) = choose_models(
        ResultsFolder(args.results), [*where, *(f"key={start}" for start in key)]
    )

    from dlmexp.experiment.models.export import export as write_model

    script = write_model(chosen.model, Path(out))
    print(f"model {chosen.words}")
    if script.suffix == ".npz":
        print(f"{out}: dlmexp predict FILE --model {out}")
        return
    importable = script.stem.isidentifier() and script.parent == Path()
    by_path = f"import runpy; load = runpy.run_path({str(script)!r})['load']"
    load_it = f"from {script.stem} import load" if importable else by_path
    print(f"{out} and {script}: {load_it}; model, likelihood, saved = load({out!r})")
