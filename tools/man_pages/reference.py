"""Sections 5 and 8 of the manual: the configuration, and the daemon."""

import json
from typing import get_type_hints

from advisor.config import FILE_VARIABLE, Config, describe, variable_of
from advisor.daemon.run import END_S
from tools.man_pages.commands import ANY_KEY, SLURM_CONF, commands_of, exit_status_lines, see_also, tree
from tools.man_pages.files import CONFIGURATION, DAEMON, JOURNAL, MODELS, file_lines
from tools.man_pages.options import parameter_lines, synopsis
from tools.man_pages.roff import Page, bold, example, heading, item, prose, subheading

EXAMPLE_TOML = """\
# /etc/sadvise/conf.d/mode.toml
[mode]
default = "recommend"
accounts = "vision=apply"
partitions = "debug=observe, gpu=apply"

[guard]
max_added_delay_s = 7200.0
"""
_CONFIGURATION = """\
`sadvise` needs no configuration. What is read, later ones over earlier ones: the defaults below, sadvise.toml, the
files of conf.d in the order of their names, variables, the options of a command. `--config FILE`, or the variable
`SADVISE_CONFIG`, names one file to read in place of all of these files.

The files are TOML. An unknown table or key, a wrong type or a value out of bounds is an error. Names that end in `_s`
are seconds, those that end in `_mib` are MiB, those that end in `_ratio` go from 0 to 1.

`sadvise config check` says whether what is there is valid, `sadvise config show` prints every value in force with where
it came from, `sadvise config example` prints a file with every default. A daemon that runs reads the files anew when it
is told to reload; what is not valid it does not take.
"""
_DAEMON = """\
`sadvised`, which is `sadvise serve`, reads the cluster in rounds, one a minute by default, and does with the pending
GPU jobs what the table [mode] of `sadvise.toml`(5) says for their partitions and accounts. Of several modes that apply
to a job the most careful one counts.
"""
_MODES = {
    "observe": "The job is forecast and learned from; nothing is proposed for it. This is the default.",
    "recommend": "What should change is written into the journal.",
    "apply": "What no rule of the guard refuses is changed, and taken back when it is due.",
}
_AROUND = """\
Whatever the mode, nothing is changed while the daemon is paused (`sadvise pause`), or while a circuit breaker holds it
to recommending; `sadvise journal changes` says which and why. Every change is in the journal before it is sent.
After a crash, the next start finds out what was done and takes it from there.

Run one daemon for each cluster, as a user of its own with the least privilege that serves. Where slurm.conf names
several `SlurmctldHost`, run one on each of them: only the one beside the slurmctld that acts applies, the others stand
by. The package makes the user `sadvise` and neither enables nor starts the service. Metrics and health are told over
HTTP at the place that `metrics.listen` names.
"""
_SIGNALS = {
    "SIGHUP": "Read the configuration anew after the round that runs; one that is not valid is not taken, and the old "
    "one stays in force. `systemctl reload sadvised` sends it.",
    "SIGTERM, SIGINT": "Finish or give up the round, take back the changes that would not expire by themselves, say "
    f"what stays out, and end, all within {END_S:g} seconds. What stays out is in the journal: the next start, or "
    "`sadvise revert`, sees to it.",
}
_SERVICE_VARIABLES = {
    "NOTIFY_SOCKET, WATCHDOG_USEC": "Set by the service manager, which is told of the start, of each round and of the "
    "end; with a watchdog, it also hears that the daemon is alive.",
    "SLURM_CONF": SLURM_CONF,
    "SLURM_CLUSTERS": "The one cluster to advise, where slurmdbd knows several.",
}


def configuration_page() -> Page:
    """Make the page of sadvise.toml."""
    lines = [
        *heading("SYNOPSIS"),
        ".br\n".join(f"{bold(path)}\n" for path in CONFIGURATION).rstrip(),
        *heading("DESCRIPTION"),
        *prose(_CONFIGURATION),
        *heading("TABLES"),
    ]
    sentences = {table: (settings.__doc__ or "") for table, settings in get_type_hints(Config).items()}
    told = ""
    for key, default, sentence in describe():
        table, _, name = key.partition(".")
        if table != told:
            told = table
            lines += [*subheading(f"[{table}]"), *prose(sentences[table])]
        lines += item(f"{bold(name)} = {bold(json.dumps(default))}", sentence)
    lines += [
        *heading("ENVIRONMENT"),
        *prose(
            f"Every key has a variable, such as `{variable_of('planning.depth')}` for `depth` of [planning]: two lines "
            "under the table's name, all in capitals. Its value is written as in the file; text needs no quotes. An "
            "empty variable counts as none."
        ),
        *item(bold(FILE_VARIABLE), "One file to read in place of those under FILES."),
        *heading("FILES"),
        *file_lines(CONFIGURATION),
        *heading("EXAMPLES"),
        *prose(
            "Recommend everywhere, apply for one account and in one partition, and delay no job by more than 2 hours:"
        ),
        *example(EXAMPLE_TOML.splitlines()),
        *see_also("sadvise.toml(5)", ("sadvise-config(1)",)),
    ]
    return Page(name="sadvise.toml", section=5, summary="configuration of sadvise", lines=lines)


def daemon_page() -> Page:
    """Make the page of the daemon."""
    serve = commands_of(tree())["serve"]
    lines = [
        *heading("SYNOPSIS"),
        synopsis("sadvised", serve),
        *heading("DESCRIPTION"),
        *prose(_DAEMON),
        *(line for mode, text in _MODES.items() for line in item(bold(mode), text)),
        *prose(_AROUND),
        *parameter_lines(serve),
        *heading("SIGNALS"),
        *(line for signal, text in _SIGNALS.items() for line in item(bold(signal), text)),
        *heading("ENVIRONMENT"),
        *(line for name, text in _SERVICE_VARIABLES.items() for line in item(bold(name), text)),
        *item(*ANY_KEY),
        *heading("FILES"),
        *file_lines({**CONFIGURATION, **JOURNAL, **MODELS, **DAEMON}),
        *exit_status_lines("serve", ""),
        *see_also("sadvised(8)", ("sadvise-serve(1)", "sadvise-pause(1)", "sadvise-journal(1)", "systemctl(1)")),
    ]
    return Page(name="sadvised", section=8, summary="scheduling advisor daemon for Slurm GPU clusters", lines=lines)
