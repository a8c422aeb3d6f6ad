"""The socket shows every user the leases that concern them, and no client keeps others away."""

import os
import select
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import JournalError
from advisor.journal.disclosure import disclosure_of
from advisor.site import lease_socket
from advisor.site.lease_socket import MOST_CONNECTIONS, MOST_OF_ONE_USER, NAME, LeaseWindow, asked, shown, uid_of
from tests.journal.test_reserve import ALL, lease
from tests.needs import SYSTEM_PYTHON

# Sends what the socket says to standard output, in a process of another user.
CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    while chunk := client.recv(65536):
        sys.stdout.buffer.write(chunk)
"""
NOBODY = 65_534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket, and that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="sadvise-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def window(folder: Path) -> Iterator[LeaseWindow]:
    window = LeaseWindow()
    with shown(window, folder) as fault:
        assert fault == ""
        yield window


def seen_by_nobody(folder: Path) -> bytes:
    argv = [str(SYSTEM_PYTHON), "-I", "-S", "-c", CLIENT, str(folder / NAME)]
    return subprocess.run(argv, capture_output=True, timeout=60, check=True, user=NOBODY, group=NOBODY, cwd="/").stdout


def idle(folder: Path) -> socket.socket:
    """Connect and read nothing."""
    client = socket.socket(socket.AF_UNIX)
    # With a timeout a full backlog would be refused at once.
    client.connect(str(folder / NAME))
    client.settimeout(60.0)
    return client


def test_owner_of_the_daemon_sees_every_lease(window: LeaseWindow, folder: Path) -> None:
    window.show(ALL)

    assert asked(folder) == ALL
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o666


@pytest.mark.needs("another user")
@pytest.mark.parametrize(("hides_jobs", "jobs"), [(True, [7]), (False, [1, 2, 3, 7])])
def test_another_user_sees_what_slurm_shows_that_user(
    hides_jobs: bool, jobs: list[int], window: LeaseWindow, folder: Path
) -> None:
    window.show(replace(ALL, hides_jobs=hides_jobs, leases=(*ALL.leases, lease(7, "nobody"))))

    disclosure = disclosure_of(seen_by_nobody(folder))

    assert [lease.job_id for lease in disclosure.leases] == jobs
    assert bool(disclosure.purposes) is not hides_jobs


def test_next_round_replaces_what_is_shown(window: LeaseWindow, folder: Path) -> None:
    window.show(ALL)
    asked(folder)

    window.show(replace(ALL, leases=()))

    assert asked(folder).leases == ()


def test_before_the_first_round_and_without_a_daemon_the_reason_is_one_line(
    window: LeaseWindow, folder: Path, tmp_path: Path
) -> None:
    assert window.content(0) == b""

    with pytest.raises(JournalError, match="the daemon has no answer yet: try again after its first round"):
        asked(folder)
    with pytest.raises(JournalError, match="no daemon answers"):
        asked(tmp_path)


@pytest.mark.needs("another user")
def test_idle_clients_of_one_user_keep_no_other_user_away(
    window: LeaseWindow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_socket, "SLOWEST_S", 60.0)
    # More than a socket buffers, so that a thread waits for each client that reads nothing.
    window.show(replace(ALL, hides_jobs=False, leases=tuple(lease(job_id, "alice") for job_id in range(3000))))
    with ExitStack() as stack:
        clients = [stack.enter_context(idle(folder)) for _ in range(MOST_OF_ONE_USER + 3)]

        content = seen_by_nobody(folder)

        assert len(disclosure_of(content).leases) == 3000
        assert sum(client.recv(1) == b"" for client in clients[MOST_OF_ONE_USER:]) == 3
    assert MOST_OF_ONE_USER < MOST_CONNECTIONS


def test_client_that_reads_nothing_is_cut_off(
    window: LeaseWindow, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_socket, "SLOWEST_S", 0.1)
    window.show(replace(ALL, leases=tuple(lease(job_id, "alice") for job_id in range(3000))))
    hung_up = select.poll()
    with idle(folder) as client:
        hung_up.register(client, select.POLLRDHUP)
        assert hung_up.poll(10_000.0)
        content = b"".join(iter(lambda: client.recv(1 << 16), b""))

    assert 0 < len(content) < len(window.content(os.geteuid()))


def test_kernel_says_who_asks() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert uid_of(ours) == os.geteuid()


def test_socket_of_an_earlier_daemon_is_replaced_and_another_file_is_not(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind(str(folder / NAME))
    with shown(LeaseWindow(), folder) as fault:
        assert fault == ""
    assert not (folder / NAME).exists()

    (folder / NAME).write_text("kept")
    with shown(LeaseWindow(), folder) as fault:
        assert "Address already in use" in fault
    assert (folder / NAME).read_text() == "kept"
