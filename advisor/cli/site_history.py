"""Asks the accounting of a site for its past jobs, which takes longer and answers with more than other commands do."""

from typing import Final

from advisor.backends.process import SlurmCommands

_TIMEOUT_S: Final = 600.0
_LIMIT_BYTES: Final = 1 << 30


def accounting_commands(cluster: str | None, timeout_s: float | None) -> SlurmCommands:
    """Return the commands that ask accounting for the jobs of months."""
    return SlurmCommands(
        timeout_s=_TIMEOUT_S if timeout_s is None else timeout_s, cluster=cluster, limit_bytes=_LIMIT_BYTES
    )
