"""Puts the Lua scripts of `slurm/` on a test cluster."""

import os
import time
from pathlib import Path

from tools.stage.live_cluster import LiveCluster

SCRIPTS = Path(__file__).parent.parent.parent / "slurm"
PLUGINS = "JobSubmitPlugins=lua\nCliFilterPlugins=lua\n"


def install_scripts(cluster: LiveCluster, site: str) -> None:
    """Install both scripts with a site table, and restart slurmctld unless it runs them already."""
    (cluster.folder / "sadvise_site.lua").write_text(site)
    for name in ("sadvise_lift.lua", "job_submit.lua", "cli_filter.lua"):
        replace_script(cluster.folder / name, (SCRIPTS / name).read_text())
    conf = cluster.folder / "slurm.conf"
    if PLUGINS not in conf.read_text():
        conf.write_text(conf.read_text() + PLUGINS)
        cluster.stop_controller()
        cluster.start_controller()


def replace_script(script: Path, text: str) -> None:
    """Write a script so that slurmctld reads it again: its time, in whole seconds, is later than it was."""
    later = max(time.time(), script.stat().st_mtime if script.exists() else 0.0) + 2.0
    script.write_text(text)
    os.utime(script, (later, later))
