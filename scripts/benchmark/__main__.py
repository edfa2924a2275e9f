import sys
from importlib import import_module

from dlmexp.common.errors import UserError

SUITES = (
    "core",
    "gpu",
    "models",
    "agreement",
    "clock",
    "growth",
    "history",
    "hostile",
    "defaults",
    "tables",
    "baselines",
    "lbfgs",
    "table1",
    "objectives",
    "initial",
    "selection",
)

if len(sys.argv) < 2 or sys.argv[1] not in SUITES:
    sys.exit(f"usage: python -m scripts.benchmark {' | '.join(SUITES)} [--help]")
try:
    sys.exit(import_module(f"scripts.benchmark.{sys.argv[1]}").main(sys.argv[2:]))
except UserError as error:
    print(f"benchmark {sys.argv[1]}: {error}", file=sys.stderr)
    sys.exit(2)
