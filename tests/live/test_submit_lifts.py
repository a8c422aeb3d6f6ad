"""The submit table on live clusters: jobs are lifted as they are submitted, adopted by the daemon, and put back."""

import itertools
import re
import subprocess
import sys
import threading
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
    reverted = revert(running, config)

    assert given < -1000 and -given % 10 == 7
    assert [nice_of(running, job_id) for job_id in waiting] == [0, 0, 0]
    assert adopted.action == SetNice(job_id=short, before=0, after=given) and adopted.state is LeaseState.OUT
    assert adopted.undo.after == 0 and adopted.due_time is not None and purpose.reason == "short_work_first"
    assert "carries the mark" not in adopted_log
    assert reverted.returncode == 0 and nice_of(running, short) == 0, reverted.stderr
    assert _leases(journal) == ()


# No job of another size is lifted by this table; of 4 GPUs that are left for interactive jobs one user can have 2.
INTERACTIVE_NICE = -1_999_999_997
ROOM = (f"room 0 {INTERACTIVE_NICE} 480 4 2", "interactive gpu 0")
ONE = ("--gpus=1", "--time=60", "-pgpu")
_names = itertools.count()


def interactive_table(*lines: str) -> str:
    """Return a table with room for interactive jobs, and none for others."""
    written = int(time.time())
    head = ("sadvise submit table 1", f"written {written}", f"valid {written + 300}", "lifts 20", "default gpu")
    body = (*head, *ROOM, *lines)
    return "".join(f"{line}\n" for line in (*body, f"end {len(body)}"))


def asked_by(live: LiveCluster, command: str, *options: str, user: str | None = None) -> int:
    """Submit a job with salloc or srun, which wait for it in a thread until it is cancelled; return its id."""
    name = f"asked-{next(_names)}"
    words = ("--no-shell",) if command == "salloc" else ()
    argv = (command, f"--job-name={name}", *words, *options, *(() if words else ("sleep", "600")))
    threading.Thread(target=live.ask, args=argv, kwargs={"user": user}, daemon=True).start()
    live.wait_for(lambda: bool(live.run("squeue", "-h", "-n", name, "-o", "%A").strip()))
    return int(live.run("squeue", "-h", "-n", name, "-o", "%A"))


@pytest.fixture
def emptied(lifting: LiveCluster) -> Iterator[LiveCluster]:
    """The cluster whose nodes never start, its jobs cancelled afterwards, which ends salloc and srun."""
    yield lifting
    lifting.run("scancel", "--partition=gpu")
    lifting.wait_for(lambda: not lifting.run("squeue", "-h", "-p", "gpu").strip())


@pytest.mark.parametrize("command", ["salloc", "srun"])
def test_job_of_salloc_or_srun_stands_first_and_a_batch_job_does_not(emptied: LiveCluster, command: str) -> None:
    place(emptied, interactive_table())

    batch, wrapped = emptied.submit(*ONE), emptied.run("sbatch", "--parsable", "--wrap=true", "-o/dev/null", *ONE)
    asked = asked_by(emptied, command, *ONE)

    assert [nice_of(emptied, job_id) for job_id in (batch, int(wrapped), asked)] == [0, 0, INTERACTIVE_NICE]


def test_share_is_kept_for_all_and_half_of_it_for_one_user(emptied: LiveCluster) -> None:
    place(emptied, interactive_table("held 0 5 1"))

    root = [nice_of(emptied, asked_by(emptied, "salloc", *ONE)) for _ in range(3)]
    games = [nice_of(emptied, asked_by(emptied, "salloc", *ONE, user="games")) for _ in range(2)]
    daemon = [nice_of(emptied, asked_by(emptied, "salloc", *ONE, user="daemon")) for _ in range(2)]

    assert root == [INTERACTIVE_NICE, INTERACTIVE_NICE, 0]
    assert games == [INTERACTIVE_NICE, 0]
    assert daemon == [INTERACTIVE_NICE, 0]


def test_jobs_that_a_new_table_has_not_seen_still_count(emptied: LiveCluster) -> None:
    place(emptied, interactive_table())
    before = [asked_by(emptied, "salloc", *ONE) for _ in range(2)]
    # Written again at once, without the restart of the script that `place` makes.
    (emptied.folder / "submit-table").write_text(interactive_table("exclude theory"))
    time.sleep(6.0)

    after = asked_by(emptied, "salloc", *ONE)

    assert [nice_of(emptied, job_id) for job_id in (*before, after)] == [INTERACTIVE_NICE, INTERACTIVE_NICE, 0]


@pytest.mark.parametrize(
    "options",
    [
        ("--time=481",),
        ("--gpus=2",),
        ("--gpus=3", "-N1"),
        ("-N2", "--gpus=2"),
        ("--nice=5",),
        ("--exclusive",),
        ("--account=theory",),
        ("--comment=sadvise: off",),
        ("-pdebug",),
    ],
    ids=" ".join,
)
def test_interactive_job_out_of_the_ordinary_is_left_alone(emptied: LiveCluster, options: tuple[str, ...]) -> None:
    place(emptied, interactive_table("exclude theory"))

    job_id = asked_by(emptied, "salloc", *ONE, *options)

    nice = nice_of(emptied, job_id)
    emptied.run("scancel", str(job_id))
    assert nice == (5 if "--nice=5" in options else 0)


def test_gang_on_one_node_is_interactive(emptied: LiveCluster) -> None:
    place(emptied, interactive_table())

    assert nice_of(emptied, asked_by(emptied, "salloc", *ONE, "--gpus=2", "-N1")) == INTERACTIVE_NICE


def test_batch_job_of_a_partition_for_notebooks_is_interactive(emptied: LiveCluster) -> None:
    place(emptied, interactive_table())
    path = emptied.folder / "submit-table"
    install_scripts(emptied, f'return {{ submit_table = "{path}", notebooks = {{ 7, {{}}, "gpu" }} }}\n')

    assert nice_of(emptied, emptied.submit(*ONE)) == INTERACTIVE_NICE


ROOMLESS: Mapping[str, str] = {
    "no room": "interactive gpu 1",
    "a partition twice": "interactive gpu 0",
    "a room twice": ROOM[0],
    "a user twice": "held 0 5 1\nheld 0 5 1",
    "a user without a room": "held 1 5 1",
    "a user by name": "held 0 games 1",
    "a share below 0": "room 1 -7 480 -1 2",
    "a nice of 0": "room 1 0 480 4 2",
    "a limit of years": "room 1 -7 1000001 4 2",
    "half a GPU": "room 1 -7 480 0.5 2",
    "a line too short": "room 1 -7 480 4",
}


@pytest.mark.parametrize("unsound", ROOMLESS)
def test_interactive_job_is_left_alone_where_the_table_is_not_sound(emptied: LiveCluster, unsound: str) -> None:
    place(emptied, interactive_table(*ROOMLESS[unsound].splitlines()))

    assert nice_of(emptied, asked_by(emptied, "salloc", *ONE)) == 0


# On one node of 8 GPUs; more GPU-time than any batch job that waits, so that it is not lifted for its size.
LONG = ("--gpus=1", "--time=480", "-pgpu")


def site_with(live: LiveCluster, folder: Path, ratio: float) -> Path:
    """Fill the node, let short jobs wait behind, and return a configuration that writes the table."""
    live.reset()
    place(live, None)
    whole = ("--gpus=8", "-n1", "-pgpu")
    holding = live.submit(*whole, "--time=60")
    live.wait_for(lambda: state(live, holding) == "RUNNING")
    for _ in range(2):
        live.submit(*whole, "--time=3")
    table: dict[str, str | float] = {"submit_table": str(live.folder / "submit-table"), "interval_max_s": 2.0}
    guard = {"min_job_age_s": 3600.0, "interactive_ratio": ratio}
    config = write_config(folder, 1.0, {"daemon": table, "guard": guard})
    config.write_text(config.read_text() + ROOMY)
    return config


def test_daemon_adopts_an_interactive_job_counts_it_and_puts_it_back(running: LiveCluster, tmp_path: Path) -> None:
    # Of a quarter of 8 GPUs one user has one.
    config, path = site_with(running, tmp_path, 0.25), running.folder / "submit-table"
    journal = tmp_path / "journal.sqlite"

    with daemon(running, config, tmp_path / "log"):
        running.wait_for(lambda: path.exists() and "room 0" in path.read_text(), 60.0, what="the table is written")
        install_scripts(running, f'return {{ submit_table = "{path}" }}\n')
        asked = [asked_by(running, "salloc", *LONG) for _ in range(2)]
        given = [nice_of(running, job_id) for job_id in asked]
        running.wait_for(lambda: bool(_leases(journal)), 60.0, what="the job is adopted")
        running.wait_for(lambda: "held 0 0 1" in path.read_text(), 60.0, what="the table counts the job")
        adopted = _leases(journal)
        with SqliteJournal.read_only(journal) as kept:
            reasons = [purpose.reason for purpose in kept.purposes(adopted).values()]
        log = (tmp_path / "log").read_text()
    reverted = revert(running, config)

    assert given == [INTERACTIVE_NICE, 0]
    assert [lease.action for lease in adopted] == [SetNice(job_id=asked[0], before=0, after=INTERACTIVE_NICE)]
    assert reasons == ["interactive_first"] and "carries the mark" not in log
    assert reverted.returncode == 0 and nice_of(running, asked[0]) == 0, reverted.stderr
    running.reset()


def test_interactive_job_is_left_alone_without_a_share(running: LiveCluster, tmp_path: Path) -> None:
    config, path = site_with(running, tmp_path, 0.0), running.folder / "submit-table"

    with daemon(running, config, tmp_path / "log"):
        running.wait_for(lambda: path.exists() and "bound gpu" in path.read_text(), 60.0, what="the table is written")
        table = path.read_text()
        install_scripts(running, f'return {{ submit_table = "{path}" }}\n')
        asked = asked_by(running, "salloc", *LONG)

    assert "room" not in table and "interactive" not in table
    assert nice_of(running, asked) == 0
    running.reset()


def test_interactive_job_starts_before_jobs_that_were_submitted_before_it(running: LiveCluster) -> None:
    running.reset()
    place(running, interactive_table())
    holding = running.submit("--gpus=8", "-n1", "-pgpu", "--time=60")
    running.wait_for(lambda: state(running, holding) == "RUNNING")
    waiting = running.submit("--gpus=8", "-n1", "-pgpu", "--time=600")
    asked = asked_by(running, "salloc", "--gpus=1", "--time=480", "-pgpu")

    running.run("scancel", str(holding))
    running.wait_for(lambda: "RUNNING" in (state(running, waiting), state(running, asked)))

    assert (state(running, waiting), state(running, asked)) == ("PENDING", "RUNNING")
    running.reset()


def revert(live: LiveCluster, config: Path) -> subprocess.CompletedProcess[str]:
    """Put all changes back, as a person does."""
    argv = [sys.executable, *PROGRAM, "revert", "--all", "--config", str(config)]
    return subprocess.run(argv, env=live.env, capture_output=True, text=True, timeout=60.0, check=False)


def _leases(journal: Path) -> tuple[Lease, ...]:
    if not journal.exists():
        return ()
    with SqliteJournal.read_only(journal) as kept:
        return kept.leases()
