"""`sadvise config`: check, show and exemplify the configuration."""

import os

import typer

from advisor.cli.options import ConfigFile, Form, group
from advisor.config import effective_values, example_toml, load_config
from advisor.view.table_layout import TableForm
from advisor.view.terminal import tool_meta

app = group("Check, show or exemplify the configuration.")


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
def show(*, config: ConfigFile = None, output: Form) -> None:
    """Print every value in effect and its source."""
    header = ["key", "value", "origin"]
    values = [dict(zip(header, each, strict=True)) for each in effective_values(load_config(config, os.environ))]
    output.show(
        {"meta": tool_meta("sadvise.config/1"), "values": values},
        header,
        [[str(field) for field in value.values()] for value in values],
        form=TableForm(whole=("key",), folded=("value", "origin")),
    )


@app.command()
def example() -> None:
    """Print a sadvise.toml with every key, its default and its meaning."""
    typer.echo(example_toml(), nl=False)
