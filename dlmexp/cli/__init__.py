"""The command `dlmexp`.

`parser` has the arguments of all commands, and `completion` the words that a shell offers at the
cursor. All other modules are commands. Each imports what it needs only when it runs, so that help
texts, completion and errors come at once.
"""

import os
import signal
import sys
from collections.abc import Sequence

from dlmexp.cli.completion import complete_word
from dlmexp.cli.parser import make_parser
from dlmexp.common.console import discard_stdout, sanitized_output
from dlmexp.common.errors import UserError, without_long_words
from dlmexp.common.extensions import use_extensions

__all__ = ["main"]

# Exit codes. The engine has two more: 1 if some cells failed, 3 if budget= is spent.
DONE = 0
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT

# What the operating system says when a library does not fit into memory.
NO_MEMORY_TO_LOAD = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
OUT_OF_MEMORY_MESSAGE = (
    "not enough memory; what is finished is safe, the same command goes on from there"
)


@sanitized_output()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 1: some cells failed; 2: the command or its settings are wrong; 3: budget= is spent;
    128 + N: ended by signal N (130: Ctrl-C).

    Args:
        argv: The words after `dlmexp`. None: those that this process was started with.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
            complete_word(make_parser())  # ends this process
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
        message = _message(error)
        _print_error(without_long_words(message, words))
        return USER_ERROR


def _run_command(words: list[str]) -> int:
    """Parse the words, import plugins, and run the command that the words name."""
    args = make_parser().parse_args(words)
    plugins = [name for name in args.plugins.split(",") if name]
    with use_extensions(args.config_dir, plugins):
        command_position = words.index(args.command)
        args.typed = words[command_position + 1 :]
        return args.run(args) or DONE


def _message(error: UserError | MemoryError | OSError | ImportError) -> str:
    """Return what is wrong and what to do; raise the error if it is a defect of the program."""
    if isinstance(error, UserError):
        return str(error)
    if _is_out_of_memory(error):
        return OUT_OF_MEMORY_MESSAGE
    # Defects: an ImportError, and an OSError that does not come from the operating system.
    if not isinstance(error, OSError) or error.errno is None:
        raise error
    path = f"{error.filename}: " if error.filename else ""
    return f"{path}{error.strerror}; fix that, or choose another file or folder"


def _is_out_of_memory(error: Exception) -> bool:
    message = str(error)
    return isinstance(error, MemoryError) or any(text in message for text in NO_MEMORY_TO_LOAD)


def _print_error(message: str) -> None:
    print(f"dlmexp: {message}", file=sys.stderr)
