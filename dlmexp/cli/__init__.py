"""The command `dlmexp`.

`parser` has the arguments, `completion` what a shell offers for the word at the cursor. All other
modules are commands; each imports what it needs only when it runs, so that help texts, completion
and errors come at once.
"""

import os
import signal
import sys
from collections.abc import Sequence

from dlmexp.cli.completion import complete_word
from dlmexp.cli.parser import make_parser
from dlmexp.common.console import discard_stdout, sanitized_output
from dlmexp.common.errors import UserError, without_long_words
from dlmexp.common.extensions import extended

__all__ = ["main"]

# Exit codes; 1, some cells failed, and 3, budget= is spent, are the engine's.
DONE = 0
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT

# What the system says when there is no memory for a library.
NO_MEMORY_TO_LOAD = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
OUT_OF_MEMORY = "not enough memory; what is finished is safe, the same command goes on from there"


@sanitized_output()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 1: some cells failed; 2: error of the user; 3: budget= is spent; 128 + N: ended by
    signal N (130: Ctrl-C).

    Args:
        argv: The words after `dlmexp`; those that this process was started with if None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "_ARGCOMPLETE" in os.environ:  # a shell asks how the last word of a line can go on
            complete_word(make_parser())
        return _run_command(words)
    except BrokenPipeError:  # as after `dlmexp status | head`
        discard_stdout()
        return DONE
    except KeyboardInterrupt:
        # The process is leaving: a second Ctrl-C would only add a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _print_error("interrupted")
        return INTERRUPTED
    except (UserError, MemoryError, OSError, ImportError) as error:
        _print_error(without_long_words(_message(error), words))
        return USER_ERROR


def _run_command(words: list[str]) -> int:
    args = make_parser().parse_args(words)
    plugins = [name for name in args.plugins.split(",") if name]
    with extended(args.config_dir, plugins):
        args.typed = words[words.index(args.command) + 1 :]
        return args.run(args) or DONE


def _message(error: UserError | MemoryError | OSError | ImportError) -> str:
    """Return what is wrong and what to do; raise the error if it is a defect of the program."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY_TO_LOAD):
        return OUT_OF_MEMORY
    if isinstance(error, ImportError) or error.errno is None:
        raise error
    path = f"{error.filename}: " if error.filename else ""
    return f"{path}{error.strerror}; fix that, or choose another file or folder"


def _print_error(message: str) -> None:
    print(f"dlmexp: {message}", file=sys.stderr)
