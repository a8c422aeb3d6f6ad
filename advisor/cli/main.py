"""Defines the entry point, which turns errors of sadvise into one line and an exit code."""

import atexit
import gc
import io
import os
import sys

from advisor import __version__

# Without `typing`, which takes as long to import as all else that `--version` does.
_UNEXPECTED = "sadvise: unexpected error, a fault of sadvise: report it with these lines, see docs/debug.md"


def main() -> None:
    """Run the `sadvise` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        print_version()
        return

    # Most of what a command imports and reads stays to its end; to search it for garbage took a tenth of `explain`.
    gc.set_threshold(400_000)
    # Python searches it once more before the process ends and all of it is freed at once.
    atexit.register(gc.freeze)
    # Plugins of pydantic are code of others in a tool for operators; to look for them takes a tenth of a command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Its threads, one for each core, take longer to start than all that a command multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from advisor.cli.lazy_methods import compile_when_called

    compile_when_called()
    from advisor.cli.app import UsageError, is_help, usage_line
    from advisor.errors import AdvisorError
    from advisor.text import one_line

    _prepare_output()
    try:
        try:
            status = _run()
        finally:
            sys.stdout.flush()
        sys.exit(status)
    except UsageError as err:
        sys.stderr.write(f"{err}\n" if is_help(err) else f"{one_line(usage_line(err))}\n")
        sys.exit(2)
    except AdvisorError as err:
        sys.stderr.write(f"sadvise: error: {one_line(str(err))}\n")
        sys.exit(err.exit_code)
    except BrokenPipeError:
        # The reader of a pipe has closed it, as `head` does; it has what it needs.
        _discard_output()
        sys.exit(0)
    except OSError as err:
        sys.stderr.write(f"sadvise: error: the output cannot be written: {one_line(str(err.strerror or err))}\n")
        _discard_output()
        sys.exit(1)
    except Exception as err:
        # Python prints the traceback, without the values of variables, and this line below it.
        err.add_note(_UNEXPECTED)
        raise


def print_version() -> None:
    """Print the version of sadvise and of the interpreter it runs on."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    sys.stdout.write(f"sadvise {__version__} (Python {version})\n")


def _run() -> int:
    """Run the command that the arguments name and return its exit code."""
    from typer import Abort

    from advisor.cli.app import app

    # An error of usage is raised, not printed; the code of an Exit is returned.
    try:
        status = app(prog_name="sadvise", standalone_mode=False)
    except Abort:
        return 1
    return status if isinstance(status, int) else 0


def serve() -> None:
    """Run the `sadvised` command, which is `sadvise serve`."""
    if sys.argv[1:] not in (["--version"], ["-V"]):
        sys.argv.insert(1, "serve")
    main()


def _prepare_output() -> None:
    """Make sure that there are output streams, and that they accept every character."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Redirect an output that cannot be written, so that nothing fails at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
