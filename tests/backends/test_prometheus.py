"""GPUs as a Prometheus measures them: a real one with recorded series, and what no Prometheus answers."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from typing import Final, NamedTuple

import pytest

from advisor.backends.prometheus import prometheus_url, queries_of, read_gpus
from advisor.backends.prometheus_child import MOST_BYTES
from advisor.domain.idle_gpus import MEASURED_S, GpuReading, UtilisationSettings
from advisor.errors import UtilisationError
from advisor.site.site_gate import RoundDeadline
from tests.measured_gpus import SCRAPED_S, GpuSeries, StandIn, prometheus_with, stand_in, vector
from tests.promtool import promtool

__all__ = ["promtool"]

HOUR_S: Final = 3600.0
# The queries go by steps of 5 minutes; the series by 30 s.
STEP_S: Final = 330.0
NOW: Final = time.time()


def _since(instant: float, before: float) -> Callable[[float], float]:
    return lambda at: before if at < instant else 0.0


def _series(now: float) -> list[GpuSeries]:
    """Return what GPUs did until now; of n1, `EXPECTED_H` says for how long they have been idle."""
    of_n1: Mapping[int, Callable[[float], float | None]] = {
        0: lambda _: 0.5,
        1: _since(now - 5 * HOUR_S, 90.0),
        2: lambda _: 95.0,
        # One busy sample an hour.
        3: lambda at: 40.0 if at % HOUR_S < SCRAPED_S else 0.0,
        # Not measured before, and for an hour.
        4: lambda at: None if at < now - 4 * HOUR_S else 0.0,
        5: lambda at: None if now - 4 * HOUR_S < at < now - 3 * HOUR_S else 0.0,
        # Not measured any more.
        6: lambda at: 0.0 if at < now - HOUR_S else None,
    }
    return [
        *(GpuSeries(labels=f'Hostname="n1.example.org",gpu="{gpu}"', percent=of_n1[gpu]) for gpu in of_n1),
        GpuSeries(labels='instance="n2:9400",device="nvidia3"', percent=_since(now - 6 * HOUR_S, 9.0)),
        GpuSeries(labels='Hostname="n3",gpu="0",hpc_job="77"', percent=lambda _: 0.0),
        GpuSeries(labels='Hostname="n3",gpu="1",hpc_job=""', percent=lambda _: 0.0),
    ]


EXPECTED_H: Final = {0: 24.0, 1: 5.0, 2: 0.0, 4: 4.0, 5: 3.0}


class Recorded(NamedTuple):
    """A Prometheus, and when its series were made."""

    settings: UtilisationSettings
    made_time: float


@pytest.fixture(scope="module")
def recorded(need: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder, now = tmp_path_factory.mktemp("prometheus"), time.time()
    with prometheus_with(_series(now), folder, need("prometheus"), str(need("promtool"))) as url:
        yield Recorded(UtilisationSettings(prometheus=url), now)


@pytest.fixture
def site(recorded: Recorded) -> UtilisationSettings:
    return recorded.settings


@pytest.fixture
def false_one() -> Iterator[StandIn]:
    with stand_in() as peer:
        yield peer


def fault_of(settings: UtilisationSettings) -> str:
    with pytest.raises(UtilisationError) as raised:
        read_gpus(settings, time.time())
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.needs("prometheus", "promtool")
def test_a_gpu_is_idle_since_it_was_last_busy_or_not_measured(recorded: Recorded) -> None:
    now = time.time()
    by_index = {each.index: each for each in read_gpus(recorded.settings, now) if each.node == "n1"}

    assert by_index.keys() == EXPECTED_H.keys() | {3}
    for index, hours in EXPECTED_H.items():
        passed_s = now - recorded.made_time if hours else 0.0
        assert -STEP_S <= by_index[index].idle_s - min(hours * HOUR_S + passed_s, MEASURED_S) <= STEP_S, index
    # One busy sample is seen wherever it falls between two steps.
    assert by_index[3].idle_s <= HOUR_S
    assert all(each.job_id is None for each in by_index.values())


@pytest.mark.needs("prometheus", "promtool")
def test_labels_are_those_of_the_site(site: UtilisationSettings) -> None:
    [other] = read_gpus(replace(site, node_label="instance", gpu_label="device"), time.time())
    named = read_gpus(replace(site, job_label="hpc_job"), time.time())

    assert (other.node, other.index) == ("n2", 3)
    assert {(each.node, each.index, each.job_id) for each in named if each.node == "n3"} == {
        ("n3", 0, 77),
        ("n3", 1, None),
    }


@pytest.mark.needs("prometheus", "promtool")
def test_a_threshold_moves_what_counts_as_idle(site: UtilisationSettings) -> None:
    found = read_gpus(replace(site, idle_percent=0.0), time.time())

    assert {each.index: each.idle_s for each in found if each.node == "n1"}[0] < STEP_S


@pytest.mark.needs("prometheus", "promtool")
def test_a_series_that_is_not_there_is_said(site: UtilisationSettings) -> None:
    assert fault_of(replace(site, metric="no_such_series")) == (
        "prometheus: 127.0.0.1 has no series no_such_series now: check utilisation.metric"
    )


def test_queries_hold_nothing_but_names_and_numbers() -> None:
    assert queries_of(UtilisationSettings(job_label="hpc_job", idle_percent=0.00001)) == (
        "count by (Hostname, gpu, hpc_job) (DCGM_FI_DEV_GPU_UTIL)",
        (
            "max_over_time(timestamp(count by (Hostname, gpu, hpc_job) (DCGM_FI_DEV_GPU_UTIL @ end()) unless (max by "
            "(Hostname, gpu, hpc_job) (max_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) <= 1e-05))[86400s:5m])"
        ),
    )


HTML: Final = b"<!doctype html><title>Sign in</title>" * 100
NO_PROMETHEUS: Final = "prometheus: 127.0.0.1 answers, but not as Prometheus does: check utilisation.prometheus"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        pytest.param(HTML, NO_PROMETHEUS, id="HTML"),
        pytest.param(b"", NO_PROMETHEUS, id="nothing"),
        pytest.param(b"[" * 1_000_000, NO_PROMETHEUS, id="deep"),
        pytest.param(b'{"status": "error", "error": "no\\nsuch"}', NO_PROMETHEUS, id="an error"),
        pytest.param(b'{"status":"success","data":{"resultType":"matrix","result":[]}}', NO_PROMETHEUS, id="a matrix"),
        pytest.param(vector(({}, 1.0, "1")).replace(b'"1"]', b"1]"), NO_PROMETHEUS, id="a value that is not a text"),
        pytest.param(b"\xff\xfe", NO_PROMETHEUS, id="bytes"),
        pytest.param(
            b" " * (MOST_BYTES + 1),
            f"prometheus: 127.0.0.1: answered with more than {MOST_BYTES} bytes, which sadvise does not read: check "
            "utilisation.prometheus",
            id="huge",
        ),
        pytest.param(
            vector(({"Hostname": "n1", "gpu": "0"}, NOW - 7200.0, "1")),
            "prometheus: the clock of 127.0.0.1 and that of this host differ by more than 5 min",
            id="another clock",
        ),
        pytest.param(
            vector(({"Hostname": "n1", "gpu": "0"}, 1.0, "1")).replace(b"1.0,", b"NaN,"),
            "prometheus: the clock of 127.0.0.1 and that of this host differ by more than 5 min",
            id="no clock",
        ),
    ],
)
def test_what_no_prometheus_answers_is_one_line(false_one: StandIn, answer: bytes, fault: str) -> None:
    false_one.answers = [answer]

    assert fault_of(UtilisationSettings(prometheus=false_one.url)) == fault


def test_statuses_redirects_and_silence_are_said(false_one: StandIn) -> None:
    site = UtilisationSettings(prometheus=f"{false_one.url}/prometheus/")
    false_one.status = 422
    assert fault_of(site).startswith("prometheus: 127.0.0.1: answered 422 Unprocessable")
    false_one.status, false_one.location = 302, "http://127.0.0.1:1/"
    assert fault_of(site).startswith("prometheus: 127.0.0.1: answered 302 Found")

    false_one.hang = Event()
    begun = time.monotonic()

    assert fault_of(replace(site, timeout_s=1.0)).startswith("prometheus: 127.0.0.1: gave no answer within 1 s")
    assert time.monotonic() - begun < 10.0
    assert false_one.requests[0].path.startswith("/prometheus/api/v1/query?query=count+by")


def test_the_end_of_the_daemon_ends_the_wait_for_an_answer(false_one: StandIn) -> None:
    false_one.hang, patience = Event(), RoundDeadline()
    begun = time.monotonic()
    Timer(0.5, patience.stopping.set).start()

    with pytest.raises(UtilisationError):
        read_gpus(UtilisationSettings(prometheus=false_one.url, timeout_s=60.0), time.time(), patience)

    assert time.monotonic() - begun < 10.0


@pytest.mark.parametrize(
    "last",
    [
        *("NaN", "+Inf", "-1", "", "0x10", "5"),
        pytest.param(f"{NOW + 1e9}", id="later than now"),
        pytest.param(f"{NOW - 2 * MEASURED_S}", id="before what was asked for"),
    ],
)
def test_a_time_that_is_none_makes_no_gpu_idle(false_one: StandIn, last: str) -> None:
    labels, now = {"Hostname": "n1", "gpu": "0"}, time.time()
    false_one.answers = [vector((labels, now, "1")), vector((labels, now, last))]

    [reading] = read_gpus(UtilisationSettings(prometheus=false_one.url), now)

    assert reading == GpuReading(node="n1", index=0, idle_s=0.0)


def test_series_of_unclear_gpus_are_left_out(false_one: StandIn) -> None:
    now = time.time()
    labels = [
        {"Hostname": "n1.alpha", "gpu": "0"},
        {"Hostname": "n1.beta", "gpu": "0"},
        {"Hostname": "n1.alpha", "gpu": "1"},
        {"Hostname": "n2", "gpu": "GPU-8f2a"},
        {"Hostname": "n2"},
        {"gpu": "1"},
        {"Hostname": ":9400", "gpu": "1"},
        {"Hostname": "n2", "gpu": "99999"},
    ]
    false_one.answers = [vector(*((each, now, "1") for each in labels)), vector()]

    found = read_gpus(UtilisationSettings(prometheus=false_one.url), now)

    assert found == (GpuReading(node="n1", index=1, idle_s=MEASURED_S),)


def test_a_url_in_a_file_can_hold_a_password_which_no_message_shows(false_one: StandIn, tmp_path: Path) -> None:
    file, now = tmp_path / "prometheus.url", time.time()
    file.write_text(f"{false_one.url.replace('//', '//ann:a%2Fb@')}\n")
    false_one.answers = [vector(({"Hostname": "n1", "gpu": "0"}, now, "1")), vector()]

    read_gpus(UtilisationSettings(prometheus=str(file)), now)
    false_one.status = 401
    fault = fault_of(UtilisationSettings(prometheus=str(file)))

    assert false_one.requests[0].headers["Authorization"] == "Basic YW5uOmEvYg=="
    assert fault == "prometheus: 127.0.0.1: answered 401 Unauthorized: check utilisation.prometheus"


def test_a_file_that_holds_no_url_is_named_without_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.url"

    with pytest.raises(UtilisationError, match=r"prometheus.url: cannot be read: No such file"):
        prometheus_url(str(file))
    for text in ("ftp://ann:secret@h/", "http://ann:secret@elsewhere/", "https://[secret", ""):
        file.write_text(text)
        with pytest.raises(UtilisationError, match="holds no URL that is https") as raised:
            prometheus_url(str(file))
        assert "secret" not in str(raised.value)
