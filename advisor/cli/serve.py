"""`sadvise serve`: the daemon, also installed as `sadvised`."""

import os
from typing import Annotated

import typer

from advisor.cli.options import ConfigFile, option
from advisor.config import load_config
from advisor.daemon.launch import one_round, run


def serve(
    config: ConfigFile = None,
    once: Annotated[bool, option("--once", "Run one round, then exit; changes stay in effect.")] = False,
) -> None:
    """Run the daemon: read the cluster every minute, and recommend or apply as [mode] says; observes by default.

    SIGHUP reloads the configuration. SIGTERM reverts the changes that do not expire and stops the daemon. With --once
    it exits with 1 if the cluster could not be read.
    """
    if once:
        done = one_round(load_config(config, os.environ))
        typer.echo(done.summary)
        raise typer.Exit(done.step is None)
    if config is not None:
        # Programs that the daemon starts, such as `sadvise tune`, read the same.
        os.environ["SADVISE_CONFIG"] = str(config.absolute())
    if not run(lambda: load_config(config, os.environ)):
        # A worker that does not end would keep the process alive; its changes are in the journal.
        os._exit(1)
