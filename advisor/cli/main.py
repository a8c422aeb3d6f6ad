"""The entry point: answers the version at once, and turns our errors into one line and an exit code."""

import os
import sys


def main() -> None:
    """Run the `sadvise` command."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        print_version()
        return

    from advisor.cli.app import app
    from advisor.cli.text import one_line
    from advisor.errors import AdvisorError

    try:
        app(prog_name="sadvise")
    except AdvisorError as err:
        sys.stderr.write(f"sadvise: error: {one_line(str(err))}\n")
        sys.exit(err.exit_code)
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does; what it wanted has been printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def print_version() -> None:
    """Print the version of sadvise and of the interpreter it runs on."""
    from advisor import __version__

    version = ".".join(str(part) for part in sys.version_info[:3])
    sys.stdout.write(f"sadvise {__version__} (Python {version})\n")


if __name__ == "__main__":
    main()
