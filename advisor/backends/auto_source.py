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


class AutoSource:
    """The cluster, read by pyslurm or as text; a read that fails with pyslurm is repeated as text."""

    def __init__(
        self,
        text: TextSource,
        pyslurm: PyslurmSource | None,
        site: SiteReader,
        commands: Commands,
        clock: Clock,
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        """Take both readers, pyslurm None if it cannot be used, and the commands that read pyslurm's version."""
        self._text = text
        self._pyslurm = pyslurm
        self._site = site
        self._commands = commands
        self._clock = clock
        self._retry_s = retry_s
        self._text_since: float | None = None
        self._fault = ""
        self.name = "auto"
        self.why = "pyslurm reads only the cluster of this host" if pyslurm is None else "nothing was read yet"

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now; raises what the text reader raises."""
        seen = self._by_pyslurm() if self._pyslurm is not None and self._is_pyslurm_due() else None
        if seen is None:
            seen = self._text.snapshot()
            if self._fault:
                seen = _in_place_of("pyslurm", seen, self._fault)
        self.name = seen.source
        return seen

    def _is_pyslurm_due(self) -> bool:
        """Return whether pyslurm is tried now: not for a while after text was preferred."""
        return _is_due(self._text_since, self._clock.now(), self._retry_s)

    def _by_pyslurm(self) -> Snapshot | None:
        """Read by pyslurm; None if it does not show enough, or fails."""
        assert self._pyslurm is not None  # noqa: S101  (the caller looked)
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


class ChosenSource:
    """The cluster as the chosen reader shows it, and as text while the queue is too large for that reader.

    Users decide how large a queue is. The chosen reader is tried again after a while.
    """

    def __init__(self, chosen: ClusterSource, text: TextSource, clock: Clock, *, retry_s: float = RETRY_S) -> None:
        self._chosen = chosen
        self._text = text
        self._clock = clock
        self._retry_s = retry_s
        self._text_since: float | None = None
        self._fault = ""
        self.name = chosen.name

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now; raises what the chosen reader raises for any other reason."""
        seen = self._by_chosen() if _is_due(self._text_since, self._clock.now(), self._retry_s) else None
        if seen is None:
            seen = _in_place_of(self._chosen.name, self._text.snapshot(), self._fault)
        self.name = seen.source
        return seen

    def _by_chosen(self) -> Snapshot | None:
        """Read by the chosen reader; None if the queue is too large for it."""
        try:
            seen = self._chosen.snapshot()
        except TooLargeError as err:
            self._text_since, self._fault = self._clock.now(), str(err)
            return None
        self._text_since = None
        return seen


def _is_due(text_since: float | None, now: float, retry_s: float) -> bool:
    """Return whether the reader that text stands in for is tried now."""
    return text_since is None or not 0 <= now - text_since < retry_s


def _in_place_of(reader: str, seen: Snapshot, fault: str) -> Snapshot:
    """Return a snapshot that says for which reader text was read, and why."""
    unread = (*seen.unread, f"read as text since {reader} failed: {fault}")
    return replace(seen, unread=unread, reader_fault=fault)
