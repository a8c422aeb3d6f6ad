"""The submit table on live clusters: jobs are lifted as they are submitted, adopted by the daemon, and put back."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.lease import Lease, LeaseState
from advisor.journal import SqliteJournal
from tests.live.conftest import started
from tests.live.watching import ROOMY
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster
from tools.stage.daemon import PROGRAM, daemon, write_config
from tools.stage.submit_scripts import install_scripts, replace_script

pytestmark = pytest.mark.live

NICE, STEP, CLASSES = -200_007, 1000, 20
# Of the jobs below, a short one: 1 GPU for 10 minutes, of which a fifth is used, is in the class of 64 times less.
BOUND = "bound gpu * 7680 0.2"
SHORT = ("--gpus=1", "--time=10", "-pgpu")
SHORT_NICE = NICE - 6 * STEP


def table_text(*lines: str, age_s: float = 0.0, lifts: int = 20) -> str:
    """Return a table that was written `age_s` ago, with lines of a test's own."""
    written = int(time.time() - age_s)
    head = ("sadvise submit table 1", f"written {written}", f"valid {written + 300}", f"lifts {lifts}", "default gpu")
    body = (*head, f"partition gpu {NICE} {STEP} {CLASSES}", BOUND, *lines)
    return "".join(f"{line}\n" for line in (*body, f"end {len(body)}"))


def place(live: LiveCluster, text: str | bytes | None) -> None:
    """Give the cluster another table, which its slurmctld reads at the next submission; None removes it."""
    path = live.folder / "submit-table"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    install_scripts(live, f'return {{ submit_table = "{path}" }}\n')


def nice_of(live: LiveCluster, job_id: int) -> int:
    """Return the nice of a job."""
    return int(live.run("squeue", "-h", "-j", str(job_id), "-o", "%y"))


@pytest.fixture(scope="module")
def lifting(release: str) -> Iterator[LiveCluster]:
    """A cluster whose nodes never start, so that jobs stay pending."""
    with started(LiveCluster(release, node_count=2, start_slurmd=False, extra_lines=PRIORITY_LINES)) as live:
        place(live, table_text())
        yield live


def test_each_size_class_gets_its_nice_and_larger_jobs_get_none(lifting: LiveCluster) -> None:
    place(lifting, table_text())
    limits_in_minutes = {10: SHORT_NICE, 20: NICE - 5 * STEP, 39: NICE - 4 * STEP, 639: NICE, 640: 0, 10_000: 0}

    got = {
        limit: nice_of(lifting, lifting.submit("--gpus=1", f"--time={limit}", "-pgpu")) for limit in limits_in_minutes
    }

    assert got == limits_in_minutes


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        (("--gpus=4",), 4),
        (("--gres=gpu:4",), 4),
        (("-N2", "--gpus-per-node=2"), 4),
        (("-n4", "--gpus-per-task=1"), 4),
        (("-n4", "--gres=gpu:1"), 4),
        (("--gres=gpu",), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_gpus_are_counted_however_they_are_asked_for(lifting: LiveCluster, options: tuple[str, ...], gpus: int) -> None:
    place(lifting, table_text())

    job_id = lifting.submit(*options, "--time=10", "-pgpu")

    assert nice_of(lifting, job_id) == {1: SHORT_NICE, 4: NICE - 4 * STEP}[gpus]


def test_users_have_bounds_of_their_own_and_need_no_rights(lifting: LiveCluster) -> None:
    place(lifting, table_text("bound gpu 0 60 0.2", "bound gpu 5 7680 0.4"))

    ours, theirs = lifting.submit(*SHORT), lifting.submit(*SHORT, user="games")

    assert nice_of(lifting, ours) == 0
    assert nice_of(lifting, theirs) == NICE - 5 * STEP


def test_job_without_a_partition_gets_the_nice_of_the_default_one(lifting: LiveCluster) -> None:
    place(lifting, table_text())

    assert nice_of(lifting, lifting.submit("--gpus=1", "--time=10")) == SHORT_NICE


def test_one_table_lifts_a_limited_number_of_jobs(lifting: LiveCluster) -> None:
    place(lifting, table_text(lifts=2))

    job_ids = [lifting.submit(*SHORT) for _ in range(4)]

    assert [nice_of(lifting, job_id) for job_id in job_ids] == [SHORT_NICE, SHORT_NICE, 0, 0]


@pytest.mark.parametrize(
    ("options", "nice"),
    [
        (("--nice=0",), 0),
        (("--nice=50",), 50),
        (("--nice=-50",), -50),
        (("--hold",), 0),
        (("--priority=700",), 0),
        (("--array=1-3",), 0),
        (("--exclusive",), 0),
        (("--exclusive=user",), 0),
        (("--dependency=singleton",), 0),
        (("--begin=now+1hour",), 0),
        (("--time=0",), 0),
        (("--comment=mine; sadvise: off",), 0),
        (("--account=theory",), 0),
        (("-N1-2", "--gpus=2"), 0),
        (("--cpus-per-gpu=1",), 0),
        (("-pdebug",), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_job_out_of_the_ordinary_is_left_alone(lifting: LiveCluster, options: tuple[str, ...], nice: int) -> None:
    place(lifting, table_text("exclude theory"))

    job_id = lifting.submit(*SHORT, *options)

    assert nice_of(lifting, job_id) == nice


def test_components_of_a_heterogeneous_job_are_left_alone(lifting: LiveCluster) -> None:
    place(lifting, table_text())

    job_id = lifting.submit("--gpus=1", "--time=10", ":", "--gpus=1", "--time=10")

    assert lifting.run("squeue", "-h", "-j", str(job_id), "-o", "%y").split() == ["0", "0"]


def test_job_without_gpus_or_a_limit_is_left_alone(lifting: LiveCluster) -> None:
    place(lifting, table_text())

    assert nice_of(lifting, lifting.submit("--time=10", "-pgpu")) == 0
    assert nice_of(lifting, lifting.submit("--gpus=1", "-pgpu")) == 0


UNSOUND: Mapping[str, Callable[[], str | bytes | None]] = {
    "missing": lambda: None,
    "empty": lambda: "",
    "stale": lambda: table_text(age_s=10_000.0),
    "of tomorrow": lambda: table_text(age_s=-86_400.0),
    "valid for years": lambda: table_text().replace("valid ", "valid 9"),
    "cut off": lambda: table_text()[:-8],
    "continued": lambda: table_text() + "partition other -7 10 0\n",
    "no table": lambda: "nonsense\n" * 10,
    "any bytes": lambda: bytes(range(256)) * 100,
    "zeros": lambda: b"\0" * 1000,
    "carriage returns": lambda: table_text().replace("\n", "\r\n"),
    "huge": lambda: table_text(*(f"exclude {'x' * 200}{number}" for number in range(1300))),
    "no count of lifts": lambda: table_text().replace("lifts 20", "default gpu"),
    "too many lifts": lambda: table_text(lifts=101),
    "an unknown word": lambda: table_text("unknown line"),
    "a bound twice": lambda: table_text(BOUND),
    "a user below 0": lambda: table_text("bound gpu -5 7680 0.4"),
    "a share above 1": lambda: table_text("bound gpu 0 7680 1.5"),
    "an exponent": lambda: table_text("bound gpu 0 1e9 0.5"),
    "no number": lambda: table_text("bound gpu 0 nan 0.5"),
    "an unknown partition": lambda: table_text("bound other 0 7680 0.5"),
    "a nice too low": lambda: table_text("partition other -2147483647 10 0"),
    "a class too low": lambda: table_text("partition other -1999999997 1000 20"),
    "a nice above 0": lambda: table_text("partition other 7 10 0"),
}


@pytest.mark.parametrize("unsound", UNSOUND)
def test_job_is_left_alone_where_the_table_is_not_sound(lifting: LiveCluster, unsound: str) -> None:
    place(lifting, UNSOUND[unsound]())

    job_id = lifting.submit(*SHORT)

    assert nice_of(lifting, job_id) == 0


def test_job_is_left_alone_where_the_table_is_a_folder_or_endless_or_cannot_be_opened(lifting: LiveCluster) -> None:
    closed = lifting.folder / "closed"
    closed.symlink_to(closed)
    for path in (lifting.folder, Path("/dev/zero"), Path("/proc/self/mem"), closed):
        install_scripts(lifting, f'return {{ submit_table = "{path}" }}\n')

        assert nice_of(lifting, lifting.submit(*SHORT)) == 0


def test_table_that_went_stale_is_not_followed(lifting: LiveCluster) -> None:
    place(lifting, table_text(age_s=297.0))

    before = lifting.submit(*SHORT)
    time.sleep(4.0)
    after = lifting.submit(*SHORT)

    assert (nice_of(lifting, before), nice_of(lifting, after)) == (SHORT_NICE, 0)


@pytest.mark.parametrize(
    "text",
    ["return {", "error('broken')", "return 7", "return function() error('late') end", None,
     "return function() return function() error('at each job') end end"],
)  # fmt: skip
def test_failing_or_missing_script_lets_every_job_through(lifting: LiveCluster, text: str | None) -> None:
    place(lifting, table_text())
    script, job_submit = lifting.folder / "sadvise_lift.lua", lifting.folder / "job_submit.lua"
    log = lifting.folder / "slurmctld.log"
    before = log.stat().st_size
    script.unlink() if text is None else script.write_text(text)
    replace_script(job_submit, job_submit.read_text())

    job_id = lifting.submit(*SHORT)

    assert nice_of(lifting, job_id) == 0
    assert re.search("sadvise: (no job gets|a job goes without) a nice: ", log.read_text(errors="replace")[before:])


@pytest.fixture(scope="module")
def running(release: str) -> Iterator[LiveCluster]:
    """A cluster of one node."""
    with started(LiveCluster(release, node_count=1, extra_lines=PRIORITY_LINES)) as live:
        yield live


def _first_to_start(live: LiveCluster) -> int:
    """Submit a long and then a short job for a busy node; return the index of the one that starts first."""
    live.reset()
    whole = ("--gpus=8", "-n1", "-pgpu")
    holding = live.submit(*whole, "--time=60")
    live.wait_for(lambda: state(live, holding) == "RUNNING")
    waiting = [live.submit(*whole, f"--time={minutes}") for minutes in (600, 1)]
    live.run("scancel", str(holding))
    live.wait_for(lambda: any(state(live, job_id) == "RUNNING" for job_id in waiting))
    return [state(live, job_id) for job_id in waiting].index("RUNNING")


def state(live: LiveCluster, job_id: int) -> str:
    """Return the state of a job; "" once it is forgotten."""
    return live.run("squeue", "-h", "-j", str(job_id), "-o", "%T", check=False).strip()


def test_short_job_starts_before_a_long_one_that_was_submitted_before_it(running: LiveCluster) -> None:
    place(running, table_text())

    assert _first_to_start(running) == 1


def test_long_job_starts_first_once_the_table_is_stale(running: LiveCluster) -> None:
    place(running, table_text(age_s=10_000.0))

    assert _first_to_start(running) == 0


def test_daemon_writes_the_table_adopts_the_jobs_and_puts_them_back(running: LiveCluster, tmp_path: Path) -> None:
    running.reset()
    path = running.folder / "submit-table"
    place(running, None)
    whole = ("--gpus=8", "-n1", "-pgpu")
    holding = running.submit(*whole, "--time=60")
    running.wait_for(lambda: state(running, holding) == "RUNNING")
    waiting = [running.submit(*whole, "--time=600") for _ in range(3)]
    config = write_config(
        tmp_path,
        1.0,
        {"daemon": {"submit_table": str(path), "interval_max_s": 2.0}, "guard": {"min_job_age_s": 3600.0}},
    )
    config.write_text(config.read_text() + ROOMY)
    journal = tmp_path / "journal.sqlite"
    with daemon(running, config, tmp_path / "log"):
        running.wait_for(lambda: path.exists() and "bound gpu" in path.read_text(), 60.0, what="the table is written")
        install_scripts(running, f'return {{ submit_table = "{path}" }}\n')
        short = running.submit(*whole, "--time=1")
        given = nice_of(running, short)
        running.wait_for(lambda: bool(_leases(journal)), 60.0, what="the job is adopted")
        (adopted,) = _leases(journal)
        with SqliteJournal.read_only(journal) as kept:
            purpose = kept.purposes([adopted])[short, adopted.lever]
        adopted_log = (tmp_path / "log").read_text()
    # The daemon is killed: a person puts the job back.
    revert = subprocess.run(
        [sys.executable, *PROGRAM, "revert", "--all", "--config", str(config)],
        env=running.env, capture_output=True, text=True, timeout=60.0, check=False,
    )  # fmt: skip

    assert given < -1000 and -given % 10 == 7
    assert [nice_of(running, job_id) for job_id in waiting] == [0, 0, 0]
    assert adopted.action == SetNice(job_id=short, before=0, after=given) and adopted.state is LeaseState.OUT
    assert adopted.undo.after == 0 and adopted.due_time is not None and purpose.reason == "short_work_first"
    assert "carries the mark" not in adopted_log
    assert revert.returncode == 0 and nice_of(running, short) == 0, revert.stderr
    assert _leases(journal) == ()


def _leases(journal: Path) -> tuple[Lease, ...]:
    if not journal.exists():
        return ()
    with SqliteJournal.read_only(journal) as kept:
        return kept.leases()
