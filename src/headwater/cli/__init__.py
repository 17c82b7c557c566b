"""The command line. One file per group of commands; commands.py puts them together.

Rules that hold here:

- An error is one line that says what is wrong. HEADWATER_DEBUG=1 shows its traceback.
- `headwater --help` is quick: a slow import is made by the command that needs it.
- The broker is small: what it does not need is kept out before anything can import it.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from headwater import without
from headwater.cli import streams
from headwater.errors import HeadwaterError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            if list(words[:1]) == ["serve"]:
                without.keep_out(without.BROKERS)
                _serve(words[1:])
            # Here, because commands know the installed protocols, and one of these may be broken.
            from headwater.cli.commands import app

            app(args=arguments, prog_name="headwater")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it. Python flushes once more at its exit; let it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("HEADWATER_DEBUG"):
            raise
        streams.complain(_sentence(error))
    sys.exit(1)


def _serve(words: Sequence[str]) -> None:
    """Serve and exit, without loading what other commands need, if the options are plain."""
    from headwater.cli import serving

    if (options := serving.parse(words)) is not None:
        serving.serve(options)
        sys.exit(0)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).splitlines())
    if isinstance(error, HeadwaterError):
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    name = type(error).__name__
    return f"unexpected error ({name}: {text}); HEADWATER_DEBUG=1 shows the traceback"
