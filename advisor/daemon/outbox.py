"""The outbox: sends notices from a thread of its own, so that no round waits for a mail system or a web server."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Final

from advisor.clock import Clock
from advisor.config import Config
from advisor.domain.dataclass import dataclass
from advisor.domain.mode import Mode
from advisor.domain.notice import Notice, NoticeSettings
from advisor.domain.units import HOUR_S
from advisor.errors import AdvisorError, NoticeError
from advisor.metrics.round import Round
from advisor.site.delivery import Letter, Target, read_state, targets_of, write_state
from advisor.site.digests import DigestTask
from advisor.view.notice_words import round_notices, summed_up

# The waits before a letter is tried again; after the last one it is given up.
RETRIES_S: Final = (60.0, 600.0, 3600.0)
# A topic counts as new once no round has shown it for this long.
QUIET_S: Final = 1800.0
_MOST_LETTERS: Final = 1000
# As many letters are tried before what became of them is written down.
_BATCH: Final = 20
_MOST_ROUNDS: Final = 100
_LOOK_S: Final = 15.0
# The end of the daemon does not wait for a delivery for longer.
_ENDS_S: Final = 1.0

Deliver = Callable[[Notice, Target, NoticeSettings], None]
MakeNotices = Callable[[DigestTask], list[Notice]]
Count = Callable[[Target, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one round showed."""

    time: float
    mode: Mode
    notices: Sequence[Notice]


class Outbox:
    """Takes rounds from the thread of the daemon, and sends notices from another, with bounded retries.

    `fault` is what keeps notices from their targets now, "" if nothing does.
    """

    def __init__(
        self,
        config: Config,
        path: Path,
        clock: Clock,
        log: Any,
        *,
        deliver: Deliver,
        make: MakeNotices,
        count: Count = lambda _target, _outcome: None,
    ) -> None:
        """Read what earlier daemons sent; `deliver` sends a notice, `make` makes digests, `count` counts deliveries."""
        self._config, self._path, self._clock, self._log = config, path, clock, log
        self._deliver, self._make, self._count = deliver, make, count
        self._state, unread = read_state(path)
        if unread:
            log.warning("the notices of earlier daemons are not known", fault=unread)
        self._mode = self._state.mode
        self._rounds: Queue[_Seen | None] = Queue(_MOST_ROUNDS)
        self._faults: dict[str, str] = {}
        # When a round last showed each topic.
        self._shown_at: dict[str, float] = {}

    @property
    def fault(self) -> str:
        """Why notices do not reach their targets, or the state is not kept."""
        return "; ".join(self._faults.copy().values())

    def adopt(self, config: Config) -> None:
        """Use another configuration from the next notice on."""
        self._config = config

    def observe(self, done: Round) -> None:
        """Note a round, without waiting for anything; called by the thread of the rounds."""
        settings = self._config.notify
        notices = round_notices(done, settings.kinds, self._mode) if settings.reaches_administrators else []
        self._mode = done.mode
        try:
            self._rounds.put_nowait(_Seen(time=done.started_time, mode=done.mode, notices=notices))
        except Full:
            # The thread that sends is stuck in a delivery; what lasts recurs in the next round.
            self._log.warning("notices of a round are lost: the outbox is full", notices=len(notices))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs; what is not delivered by its end is tried after the next start."""
        thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        thread.start()
        try:
            yield
        finally:
            # A full queue belongs to a thread that is stuck; it ends with the process.
            with suppress(Full):
                self._rounds.put_nowait(None)
            thread.join(_ENDS_S)

    def work(self, seen: Iterable[_Seen] = ()) -> None:
        """Take in what rounds showed, make what is due, and try every letter that is due."""
        before = self._state.model_dump_json()
        for each in seen:
            self._take(each)
        now = self._clock.now()
        self._sum_up(now)
        self._make_due(now)
        self._keep(before)
        self._send_due(now)

    def drain(self) -> list[_Seen]:
        """Return the rounds that wait to be taken in."""
        waiting: list[_Seen] = []
        while True:
            try:
                seen = self._rounds.get_nowait()
            except Empty:
                return waiting
            if seen is not None:
                waiting.append(seen)

    def _run(self) -> None:
        while True:
            try:
                first = self._rounds.get(timeout=_LOOK_S)
            except Empty:
                seen: list[_Seen] = []
            else:
                if first is None:
                    return
                seen = [first, *self.drain()]
            try:
                self.work(seen)
            except Exception:
                # A fault here must not end the thread: the next look tries again.
                self._log.exception("notices were not sent: a fault of sadvise itself")

    def _take(self, seen: _Seen) -> None:
        """Queue the notices of a round that are new, as many as the hourly bound allows, and count the others."""
        state = self._state
        state.mode = seen.mode
        for topic in [*state.topics]:
            # A topic that an earlier daemon knew is as good as seen now.
            if seen.time - self._shown_at.setdefault(topic, seen.time) >= QUIET_S:
                del state.topics[topic], self._shown_at[topic]
        for notice in seen.notices:
            if not notice.topic:
                self._admit(notice)
                continue
            self._shown_at[notice.topic] = seen.time
            if state.topics.get(notice.topic) != notice.value:
                state.topics[notice.topic] = notice.value
                self._admit(notice)

    def _admit(self, notice: Notice) -> None:
        summed = self._state.summed
        if self._has_room(self._clock.now()):
            self._post(notice)
        else:
            summed[notice.kind] = summed.get(notice.kind, 0) + 1

    def _has_room(self, now: float) -> bool:
        """Return whether the hourly bound allows one more notice, which then counts as sent."""
        sent = [instant for instant in self._state.sent_times if 0.0 <= now - instant < HOUR_S]
        has_room = len(sent) < self._config.notify.max_per_hour
        self._state.sent_times = [*sent, now] if has_room else sent
        return has_room

    def _sum_up(self, now: float) -> None:
        """Queue one notice for those above the bound, once there is room for it."""
        if self._state.summed and self._has_room(now):
            self._post(summed_up(self._state.summed, now))
            self._state.summed = {}

    def _post(self, notice: Notice) -> None:
        """Queue a notice for each of its targets."""
        now = self._clock.now()
        for target in targets_of(notice, self._config.notify):
            if len(self._state.letters) >= _MOST_LETTERS:
                self._count(target, "given_up")
                continue
            self._state.letters.append(Letter(notice=notice, target=target, due_time=now))

    def _make_due(self, now: float) -> None:
        """Queue the digest and the mails to users that are due; the first start makes none of them."""
        settings, state = self._config.notify, self._state
        digest_since, users_since = settings.digest_due_since(now), settings.users_due_since(now)
        with_digest = digest_since is not None and 0.0 < state.digest_time < digest_since
        with_users = users_since is not None and 0.0 < state.users_time < users_since
        if with_digest or with_users:
            last = state.users_time if with_users else None
            self._make_notices(DigestTask(config=self._config, now=now, with_digest=with_digest, users_since=last))
        # Off counts as never, so that what is turned on later begins then.
        state.digest_time = _moved(state.digest_time, now, due=with_digest, is_on=digest_since is not None)
        state.users_time = _moved(state.users_time, now, due=with_users, is_on=users_since is not None)

    def _make_notices(self, task: DigestTask) -> None:
        try:
            for notice in self._make(task):
                self._post(notice)
            self._faults.pop("digest", None)
        except AdvisorError as err:
            self._report("digest", f"the digest was not made: {err}")

    def _send_due(self, now: float) -> None:
        """Try the letters that are due; where one fails, others to the same receiver are not tried now."""
        due = [letter for letter in self._state.letters if letter.due_time <= now]
        failed: dict[tuple[str, str], str] = {}
        for start in range(0, len(due), _BATCH):
            before = self._state.model_dump_json()
            for letter in due[start : start + _BATCH]:
                self._try(letter, failed)
            self._keep(before)

    def _try(self, letter: Letter, failed: dict[tuple[str, str], str]) -> None:
        """Deliver a letter, or put it off; `failed` maps receivers to why they got nothing in this pass."""
        receiver = (letter.target, letter.notice.user)
        fault = failed.get(receiver) or self._fault_of(letter)
        if fault:
            failed[receiver] = fault
            self._put_off(letter, fault)
            return
        self._state.letters.remove(letter)
        self._count(letter.target, "sent")
        if self._faults.pop(letter.target, None) is not None:
            self._log.info("notices are delivered again", target=letter.target)

    def _fault_of(self, letter: Letter) -> str:
        """Deliver a letter, and return why it was not taken, "" if it was."""
        try:
            self._deliver(letter.notice, letter.target, self._config.notify)
        except NoticeError as err:
            return str(err)
        return ""

    def _put_off(self, letter: Letter, fault: str) -> None:
        """Try a letter again later, or give it up after the last attempt."""
        self._report(letter.target, fault)
        place = self._state.letters.index(letter)
        if letter.attempts >= len(RETRIES_S):
            del self._state.letters[place]
            self._count(letter.target, "given_up")
            self._log.warning("a notice is given up", kind=str(letter.notice.kind), target=letter.target)
            return
        due_time = self._clock.now() + RETRIES_S[letter.attempts]
        self._count(letter.target, "put_off")
        self._state.letters[place] = letter.model_copy(update={"attempts": letter.attempts + 1, "due_time": due_time})

    def _report(self, name: str, fault: str) -> None:
        """Note a fault, and log it if there was none of that target."""
        if name not in self._faults:
            self._log.warning("notices are not delivered", fault=fault)
        self._faults[name] = fault

    def _keep(self, before: str) -> None:
        """Write the state if it has changed."""
        if self._state.model_dump_json() == before:
            return
        fault = write_state(self._path, self._state)
        if fault:
            self._report("state", f"sent notices are not recorded: {fault}")
        else:
            self._faults.pop("state", None)


def _moved(last: float, now: float, *, due: bool, is_on: bool) -> float:
    """Return when something was last made, as of now; 0 where it is off."""
    if not is_on:
        return 0.0
    return now if due or last <= 0.0 or last > now else last
