"""The files that the manual names, with their places and modes."""

from collections.abc import Mapping
from pathlib import Path

from advisor.config import FOLDER, Config
from advisor.daemon.pause_file import NAME as PAUSE
from tools.man_pages.roff import bold, item

_DEFAULTS = Config()
_JOURNAL = Path(_DEFAULTS.journal.file)
_RUNTIME = Path(_DEFAULTS.daemon.runtime_folder)
_UNIT = "/usr/lib/systemd/system/sadvised.service"

CONFIGURATION: Mapping[str, str] = {
    str(FOLDER / "sadvise.toml"): "The configuration.",
    str(FOLDER / "conf.d/*.toml"): "More of it, read after the first file in the order of their names.",
}
JOURNAL: Mapping[str, str] = {
    str(_JOURNAL): "The journal: what was changed and why, and what is out; mode 0600 in a folder of mode 0700.",
}
MODELS: Mapping[str, str] = {_DEFAULTS.forecasts.models: "The models that this site fitted."}
PAUSE_FILE: Mapping[str, str] = {
    str(
        _RUNTIME / PAUSE
    ): "As long as it is there, the daemon changes nothing; mode 0644, gone when the machine restarts.",
}
DAEMON: Mapping[str, str] = {
    **PAUSE_FILE,
    str(_RUNTIME / "sadvised.lock"): "Held by the daemon, so that no second one runs here; mode 0600.",
    f"{_JOURNAL}.daemon": "Held by the daemon, so that no second one uses its journal; mode 0600.",
    _UNIT: "The unit; a site's own lines go to /etc/systemd/system/sadvised.service.d.",
}
SITE_FILES: Mapping[str, str] = {
    **CONFIGURATION,
    **JOURNAL,
    **MODELS,
    **PAUSE_FILE,
    "/usr/share/sadvise/slurm": "Scripts and settings for Slurm, with a README.md.",
    "/usr/share/doc/sadvise": "How to install, configure and trust it, at length.",
}
# A command uses the files of its options where these are not given, and those under its own name.
USED_FILES: Mapping[str, Mapping[str, str]] = {
    "--config": CONFIGURATION,
    "--journal": JOURNAL,
    "--models": MODELS,
    "pause": PAUSE_FILE,
    "resume": PAUSE_FILE,
}


def file_lines(files: Mapping[str, str]) -> list[str]:
    """List files."""
    return [line for path, text in files.items() for line in item(bold(path), text)]
