"""Opens the reader that the configuration names, with text in its place where it fails or shows less of the queue.

Text alone has no limit on the queue: it is read row by row, while what pyslurm prints is held as a whole.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from advisor.backends.commands import chosen_cluster
from advisor.backends.process import OUTPUT_LIMIT_BYTES, Commands, SlurmCommands
from advisor.backends.pyslurm_source import (
    LIMIT_BYTES,
    NO_EXCLUSIVE,
    REQUEST_FORM,
    PyslurmSource,
    does_not_fit,
    installed,
    types_not_counted,
)
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import Clock
from advisor.cycle import ClusterSource
from advisor.domain.releases import same_release
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError, BudgetSpentError, ConfigError, SlurmUnreachableError, TooLargeError

READERS: Final = ("auto", "text", "pyslurm")

# The most requests to slurmctld that a snapshot costs, by reader; where pyslurm fails, text is read in its place.
MOST_REQUESTS: Final[Mapping[str, int]] = {"text": 4, "pyslurm": 8, "auto": 8}

# The share of a command's time that pyslurm gets where text can be read in its place.
_SHARE_OF_TIME: Final = 1 / 3


# How long text is read before pyslurm is tried again.
RETRY_S: Final = 600.0


class _TextForAWhile:
    """Reads text for a while in place of pyslurm, which is then tried again."""

    def __init__(self, text: TextSource, clock: Clock) -> None:
        self._text = text
        self._clock = clock
        self._text_since: float | None = None
        self._fault = ""
        self.name = "pyslurm"

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now; raises what the text reader raises."""
        seen = self._tried() if self._is_due() else None
        if seen is not None:
            self._text_since, self._fault = None, ""
        else:
            seen = self._text.snapshot()
            if self._fault:
                unread = (*seen.unread, f"read as text since pyslurm failed: {self._fault}")
                seen = replace(seen, unread=unread, reader_fault=self._fault)
        self.name = seen.source
        return seen

    def _tried(self) -> Snapshot | None:
        """Read by pyslurm; None if text is to be read in its place."""
        raise NotImplementedError

    def _is_due(self) -> bool:
        """Return whether pyslurm is tried now: not for a while after text was preferred."""
        return self._text_since is None or not 0 <= self._clock.now() - self._text_since < RETRY_S


class AutoSource(_TextForAWhile):
    """The cluster, read by pyslurm or as text; a read that fails with pyslurm is repeated as text."""

    def __init__(
        self, text: TextSource, pyslurm: PyslurmSource | None, site: SiteReader, commands: Commands, clock: Clock
    ) -> None:
        """Take both readers, pyslurm None if it cannot be used, and the commands that read pyslurm's version."""
        super().__init__(text, clock)
        self._pyslurm = pyslurm
        self._site = site
        self._commands = commands
        self.name = "auto"
        self.why = "pyslurm reads only the cluster of this host" if pyslurm is None else "nothing was read yet"

    def _tried(self) -> Snapshot | None:
        """Read by pyslurm; None if it cannot be used, does not show enough, or fails.

        Raises `SlurmUnreachableError`, as text would after another wait; the next reads are of text.
        """
        if self._pyslurm is None:
            return None
        # The site first: without a configuration importing pyslurm takes half a minute to fail.
        config = self._site.read().config
        unfit = self._unfit(config)
        if unfit is not None:
            self._prefer_text(unfit)
            return None
        try:
            seen, counted = self._pyslurm.read()
        except BudgetSpentError:
            raise
        except AdvisorError as err:
            self._prefer_text(str(err), fault=str(err))
            if isinstance(err, SlurmUnreachableError):
                raise
            return None
        if counted.uncounted:
            self._prefer_text(types_not_counted(counted.uncounted))
            return None
        self.why = f"pyslurm fits Slurm {config.slurm_version}, and AccountingStorageTRES counts every type of GPU"
        return seen

    def _unfit(self, config: SiteConfig) -> str | None:
        """Return why pyslurm is not used here; None if it can be, as far as is known before a read."""
        if not config.traits.sharing_tells_exclusive:
            return NO_EXCLUSIVE
        if "gres/gpu" not in config.accounting_tres:
            return "AccountingStorageTRES does not count gres/gpu, without which pyslurm does not show --gpus"
        if self._text_since is None and self.name == "pyslurm":
            return None
        try:
            pyslurm = installed(self._commands)
        except AdvisorError as err:
            return str(err)
        if not same_release(pyslurm.version, config.slurm_version):
            return does_not_fit(pyslurm.version, config.slurm_version)
        if pyslurm.lacks:
            return f"pyslurm {pyslurm.version} lacks {', '.join(pyslurm.lacks)}"
        if not pyslurm.shows_forms:
            return REQUEST_FORM
        return None

    def _prefer_text(self, why: str, *, fault: str = "") -> None:
        """Read text for a while; `fault` is how pyslurm failed, "" if it was not tried."""
        self._text_since, self._fault = self._clock.now(), fault
        self.why = why


class ChosenPyslurm(_TextForAWhile):
    """The cluster as pyslurm shows it, and as text while the queue is too large for pyslurm.

    Users decide how large a queue is. pyslurm is tried again after a while.
    """

    def __init__(self, pyslurm: ClusterSource, text: TextSource, clock: Clock) -> None:
        super().__init__(text, clock)
        self._pyslurm = pyslurm

    def _tried(self) -> Snapshot | None:
        """Read by pyslurm; None if the queue is too large for it, raises what it raises otherwise."""
        try:
            return self._pyslurm.snapshot()
        except TooLargeError as err:
            self._text_since, self._fault = self._clock.now(), str(err)
            return None


def open_source(
    name: str,
    *,
    cluster: str | None,
    timeout_s: float,
    clock: Clock,
    through: Callable[[SlurmCommands], Commands] = lambda plain: plain,
) -> ClusterSource:
    """Open a reader by name; `cluster` None means SLURM_CLUSTERS, or else the cluster of this host.

    `auto` reads with pyslurm where its release is Slurm's, it shows the form of each request, and the site counts every
    type of GPU as TRES, else text.
    A queue that is too large for pyslurm is read as text. `through` wraps every command,
    for example in a budget.
    """
    asked = chosen_cluster(cluster, os.environ)

    def commands_within(limit_bytes: int, share: float = 1.0) -> Commands:
        return through(SlurmCommands(timeout_s=timeout_s * share, cluster=asked, limit_bytes=limit_bytes))

    commands = commands_within(OUTPUT_LIMIT_BYTES)
    site = SiteReader(commands, clock)
    text = TextSource(commands, clock, site)
    match name:
        case "text":
            return text
        case "pyslurm":
            if asked is not None:
                raise ConfigError("pyslurm reads only the cluster of this host: use --source text with --clusters")
            return ChosenPyslurm(PyslurmSource(clock, site, commands_within(LIMIT_BYTES)), text, clock)
        case "auto":
            quick = commands_within(LIMIT_BYTES, _SHARE_OF_TIME)
            pyslurm = PyslurmSource(clock, site, quick) if asked is None else None
            return AutoSource(text, pyslurm, site, quick, clock)
        case _:
            raise ConfigError(f"there is no reader {name!r}: choose one of {', '.join(READERS)}")
