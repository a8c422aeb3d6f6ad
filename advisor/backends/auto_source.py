"""Reads as text in place of a reader that fails, or that does not show the queue as text does.

Text alone has no limit on the queue: it is read row by row, while JSON and what pyslurm prints are held as a whole.
"""

from dataclasses import replace
from typing import Final

from advisor.backends.process import Commands
from advisor.backends.pyslurm_source import NO_EXCLUSIVE, PyslurmSource, does_not_fit, installed, types_not_counted
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import Clock
from advisor.cycle import ClusterSource
from advisor.domain.releases import same_release
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError, BudgetSpentError, TooLargeError

# How long text is read before pyslurm is tried again.
RETRY_S: Final = 600.0


class _TextForAWhile:
    """Reads text for a while in place of a reader, which is then tried again."""

    def __init__(self, reader: str, text: TextSource, clock: Clock) -> None:
        self._reader = reader
        self._text = text
        self._clock = clock
        self._text_since: float | None = None
        self._fault = ""
        self.name = reader

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now; raises what the text reader raises."""
        seen = self._tried() if self._is_due() else None
        if seen is None:
            seen = self._text.snapshot()
            if self._fault:
                unread = (*seen.unread, f"read as text since {self._reader} failed: {self._fault}")
                seen = replace(seen, unread=unread, reader_fault=self._fault)
        self.name = seen.source
        return seen

    def _tried(self) -> Snapshot | None:
        """Read by the reader; None if text is to be read in its place."""
        raise NotImplementedError

    def _is_due(self) -> bool:
        """Return whether the reader is tried now: not for a while after text was preferred."""
        return self._text_since is None or not 0 <= self._clock.now() - self._text_since < RETRY_S


class AutoSource(_TextForAWhile):
    """The cluster, read by pyslurm or as text; a read that fails with pyslurm is repeated as text."""

    def __init__(
        self, text: TextSource, pyslurm: PyslurmSource | None, site: SiteReader, commands: Commands, clock: Clock
    ) -> None:
        """Take both readers, pyslurm None if it cannot be used, and the commands that read pyslurm's version."""
        super().__init__("pyslurm", text, clock)
        self._pyslurm = pyslurm
        self._site = site
        self._commands = commands
        self.name = "auto"
        self.why = "pyslurm reads only the cluster of this host" if pyslurm is None else "nothing was read yet"

    def _tried(self) -> Snapshot | None:
        """Read by pyslurm; None if it cannot be used, does not show enough, or fails."""
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
            return None
        if counted.uncounted:
            self._prefer_text(types_not_counted(counted.uncounted))
            return None
        self._text_since, self._fault = None, ""
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
        return None

    def _prefer_text(self, why: str, *, fault: str = "") -> None:
        """Read text for a while; `fault` is how pyslurm failed, "" if it was not tried."""
        self._text_since, self._fault = self._clock.now(), fault
        self.why = why


class ChosenSource(_TextForAWhile):
    """The cluster as the chosen reader shows it, and as text while the queue is too large for that reader.

    Users decide how large a queue is. The chosen reader is tried again after a while.
    """

    def __init__(self, chosen: ClusterSource, text: TextSource, clock: Clock) -> None:
        super().__init__(chosen.name, text, clock)
        self._chosen = chosen

    def _tried(self) -> Snapshot | None:
        """Read by the chosen reader; None if the queue is too large for it, raises what it raises otherwise."""
        try:
            seen = self._chosen.snapshot()
        except TooLargeError as err:
            self._text_since, self._fault = self._clock.now(), str(err)
            return None
        self._text_since, self._fault = None, ""
        return seen
