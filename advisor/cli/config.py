"""`sadvise config`: check, show and exemplify the configuration."""

import os

import typer

from advisor import __version__
from advisor.cli.options import ConfigFile, Json, NoHeader, Parsable
from advisor.config import effective_values, example_toml, load_config
from advisor.view.table_layout import TableForm
from advisor.view.terminal import print_json, print_rows, print_table

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check, show or exemplify the configuration.",
)


@app.command()
def check(config: ConfigFile = None) -> None:
    """Check whether the configuration is valid; exit with 1 if not."""
    loaded = load_config(config, os.environ)
    for key in ("policy", "shadow"):
        if getattr(loaded.daemon, key):
            # Beside a policy, nothing of the daemon is needed.
            from advisor.daemon.live_parts import opened_policy

            opened_policy(loaded, key)
    where = sorted(set(loaded.origins.values()))
    typer.echo(f"valid: {', '.join(where) if where else 'no file and no variable sets a value, all defaults'}")


@app.command()
def show(config: ConfigFile = None, json: Json = False, parsable: Parsable = False, noheader: NoHeader = False) -> None:
    """Print every value in effect and its source."""
    values = effective_values(load_config(config, os.environ))
    header = ["key", "value", "origin"]
    rows = [[key, str(value), origin] for key, value, origin in values]
    if json:
        meta = {"tool": "sadvise", "version": __version__, "schema": "sadvise.config/1"}
        print_json(
            {"meta": meta, "values": [{"key": key, "value": value, "origin": origin} for key, value, origin in values]}
        )
    elif parsable:
        print_rows(header, rows, as_parsable=True, noheader=noheader)
    else:
        print_table(header, rows, form=TableForm(whole=("key",), folded=("value", "origin")), noheader=noheader)


@app.command()
def example() -> None:
    """Print a sadvise.toml with every key, its default and its meaning."""
    typer.echo(example_toml(), nl=False)
