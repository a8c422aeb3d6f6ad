"""`sadvise pause` and `sadvise resume`: stop the daemon from making new changes, at once."""

import getpass
from pathlib import Path
from typing import Annotated

from advisor.cli.options import option
from advisor.cli.reading_options import Site
from advisor.site.pause_file import pause as pause_daemon
from advisor.site.pause_file import resume as resume_daemon
from advisor.view.terminal import print_labelled
from advisor.watch.daemon_state import check_cluster
from advisor.watch.reading import Reading


def pause(
    *,
    reason: Annotated[str, option("--reason TEXT", "The reason, shown in the log and in the journal.")] = "",
    freeze: Annotated[
        bool, option("--freeze", "Also leave in effect what is due to be reverted, until `sadvise resume`.")
    ] = False,
    site: Site,
) -> None:
    """Stop the daemon from making new changes, effective at once; it continues to read and recommend.

    Outstanding changes are reverted when they are due; with --freeze they stay as well. `sadvise revert --all` reverts
    them now, in either case. The pause is a file in the runtime folder.
    """
    folder = _folder(site)
    pause_daemon(folder, by=getpass.getuser(), reason=reason, freeze=freeze)
    print_labelled("paused", f"{folder}; `sadvise resume` ends the pause")


def resume(site: Site) -> None:
    """Let the daemon change jobs again."""
    folder = _folder(site)
    was = resume_daemon(folder)
    print_labelled("resumed" if was else "nothing", str(folder) if was else "was paused")


def _folder(site: Reading) -> Path:
    """Return the runtime folder of the configuration in force; raises `ConfigError` for that of another cluster."""
    config = site.load_config()
    check_cluster(config, site.cluster)
    return Path(config.daemon.runtime_folder)
