"""Pages show what was read and planned, stay whole without a cluster, and keep every hostile name as text."""

import html
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.config import Config
from advisor.domain.actions import SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.idle_gpus import IdleJob, IdleLook
from advisor.domain.mode import Mode
from advisor.domain.snapshot import Snapshot
from advisor.domain.waiting_gangs import GangLook, StarvedGang
from advisor.errors import AdvisorError
from advisor.settings import WebSettings
from advisor.site.status_file import status_after
from advisor.site.status_words import Overlook
from advisor.text import escaped
from advisor.view.documents import change_document, shell
from advisor.view.overall import OthersDocument
from advisor.watch.cluster_view import cluster_view
from advisor.watch.planned import Planned, Remembered
from advisor.watch.reading import Reading
from advisor.web.content import Content
from advisor.web.spellings import cost
from tests.builders import HOUR_S, TAKEN_AT, make_cluster, make_gang, make_job, make_recommendation
from tests.examples import examples
from tests.made_rounds import change, lease, make_round, nice_action, receipt, step
from tests.strategies import HOSTILE
from tests.web.conftest import client_of
from tests.web.stage import FRONTIER, USERS, Stage, overseen

PAGES = ("/", "/line", "/advice", "/changes", "/gains", "/frontier", "/models", "/daemon")


class Structure(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_landmarks_a_heading_and_captions(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    tags = [tag for tag, _ in Structure(answer.text).elements]

    assert answer.status_code == 200
    assert (tags.count("h1"), tags.count("main"), tags.count("header"), tags.count("footer")) == (1, 1, 1, 1)
    assert tags.count("table") == tags.count("caption")
    assert "08:00:00" in answer.text and "aurora" in answer.text
    assert 'aria-current="page"' in answer.text


def test_cluster_page_shows_types_nodes_and_what_is_down(client: FlaskClient) -> None:
    text = Structure(client.get("/").text).text

    assert "partition debug is not up" in text
    assert all(gpu_type in text for gpu_type in ("a100", "h100", "v100"))
    assert re.search(r"n00000\s+a100\s+■+\s+8/8\s+mixed\+drain", text)
    assert "leaf0001" in text


def test_advice_page_has_the_command_the_gain_and_whose_wait_it_costs(client: FlaskClient, content: Content) -> None:
    text = Structure(client.get("/advice").text).text
    best = content.view().advice[0]

    assert shell(best.command) in text and shell(best.revert or []) in text
    assert best.text in text
    assert re.search(r"\d+ other jobs up to ", text)


COSTS = {
    "lift": (3, 2400.0, {}, 0.0, "3 other jobs up to 40 min each"),
    "lift past one": (1, 60.0, {}, 0.0, "1 other job up to 1 min"),
    "soft limit": (None, 600.0, {}, 0.0, "other jobs up to 10 min each"),
    "soft limit that delays no job": (None, 0.0, {}, 0.0, "none"),
    "lift of a job that advice delayed": (2, None, {}, 0.0, "2 other jobs"),
    "job that takes the place of another": (0, 0.0, {"other_job_id": 12}, 0.0, "job 12, which gives its place"),
    "job that gives its place": (1, 600.0, {"other_job_id": 12}, 0.0, "the job itself up to 10 min"),
    "timer": (0, 0.0, {}, 600.0, "the job itself up to 10 min"),
    "size": (0, 0.0, {}, 0.0, "none"),
}


@pytest.mark.parametrize(("jobs", "delay_s", "evidence", "added_s", "words"), COSTS.values(), ids=list(COSTS))
def test_whose_wait_a_change_costs_is_in_words(
    jobs: int | None, delay_s: float | None, evidence: dict[str, int], added_s: float, words: str
) -> None:
    change = make_recommendation(SetNice(job_id=7, before=0, after=5))
    row = change_document(change, make_cluster([make_job(7)]), None)
    others = OthersDocument(jobs=jobs, delay_s_max=delay_s)
    expected = replace(row.expected, others=others, added_delay_max_s=added_s)

    assert cost(replace(row, evidence=evidence, expected=expected)) == words


def test_changes_page_shows_what_is_out_and_when_it_is_due(client: FlaskClient, content: Content) -> None:
    text = Structure(client.get("/changes").text).text
    out = content.view().in_effect

    assert len(out) == 3
    assert all(str(row.job_id) in text and row.user in text for row in out)
    assert "nice -20000" in text and "Sat 07:5" in text


def test_gains_are_shown_by_day_and_by_user(client: FlaskClient) -> None:
    page = client.get("/gains").text

    assert page.count('<th scope="row">2027-01-') >= 14
    assert all(user in page for user in USERS)
    assert "waited less" in page and "not certain" in page


def test_frontier_marks_what_is_advised_and_says_what_to_set(client: FlaskClient) -> None:
    text = Structure(client.get("/frontier").text).text

    assert "● free" in text and "● advised" in text
    assert "planning.priority_decades" in text or "sadvise.toml" in text
    assert "leave Slurm as it is" not in text


def test_frontier_without_a_preset_that_gains_says_so(stage: Stage, tmp_path: Path) -> None:
    tuned = json.loads(FRONTIER.read_text()) | {"advised": None}
    path = tmp_path / "frontier.json"
    path.write_text(json.dumps(tuned))
    text = client_of(replace(stage, settings=WebSettings(frontier_file=str(path))).content()).get("/frontier").text

    assert "leave Slurm as it is" in text and "● advised" not in text


def test_job_page_says_why_it_waits(client: FlaskClient, content: Content) -> None:
    job_id = content.view().line[0].job_id
    text = Structure(client.get(f"/jobs/{job_id}").text).text

    assert content.explained(job_id).explained.first.text in text
    assert client.get("/jobs/999999").status_code == 404


def test_idle_gpus_are_on_the_page_of_the_cluster_of_the_daemon_and_of_the_job(stage: Stage) -> None:
    job = next(job for job in stage.content().view().planned.record.snapshot.running_gpu_jobs)
    found = IdleJob(job_id=job.job_id, gpus=8, idle_gpus=4, since_time=TAKEN_AT - 9 * HOUR_S)
    look = IdleLook(looked_time=TAKEN_AT, jobs=(found,))
    done = replace(make_round(step()), idle=look, settings="preset gentle since `noon`")
    last = status_after(done)
    assert last.planned is not None
    planned = last.planned.model_copy(update={"cluster": stage.content().view().cluster})
    runs = Overlook(now=TAKEN_AT, configured=Mode.OBSERVE, last=last.model_copy(update={"planned": planned}), runs=True)
    elsewhere = replace(runs, last=last.model_copy(update={"planned": planned.model_copy(update={"cluster": "b"})}))

    texts = [
        Structure(client_of(overseen(stage, overlook)).get(path).text).text
        for overlook, path in ((runs, "/"), (runs, "/daemon"), (runs, f"/jobs/{job.job_id}"))
    ]
    other = Structure(client_of(overseen(stage, elsewhere)).get(f"/jobs/{job.job_id}").text).text

    assert "GPUs idle in jobs4 of 1 job" in texts[0]
    assert "4 GPUs of 1 running job idle, 0 s ago; sadvise idle lists them" in texts[1]
    assert "4 of its 8 GPUs at 1 % or less for 9.0 h: check whether" in texts[2]
    assert "of its 8 GPUs" not in other
    assert all("preset gentle since noon" in text for text in texts)


def test_a_gang_that_starves_is_explained_on_its_page(stage: Stage) -> None:
    view = stage.content().view()
    job = next(job for job in view.planned.record.snapshot.pending_gpu_jobs if (job.gang.gpu_count or 0) > 1)
    gang = StarvedGang(
        job_id=job.job_id, gpus=8, eligible_time=TAKEN_AT - 90_000.0, since_time=TAKEN_AT, work_gpu_s=7200.0,
        passed_gpu_s=7200.0, passed_by=3, users=2,
    )  # fmt: skip
    last = status_after(replace(make_round(step()), gangs=GangLook(looked_time=TAKEN_AT, starved=(gang,))))
    assert last.planned is not None
    planned = last.planned.model_copy(update={"cluster": view.cluster})
    runs = Overlook(now=TAKEN_AT, configured=Mode.OBSERVE, last=last.model_copy(update={"planned": planned}), runs=True)

    text = Structure(client_of(overseen(stage, runs)).get(f"/jobs/{job.job_id}").text).text

    assert "3 runs of 2 other users, eligible later, had 2.0 GPU-hours on its nodes" in text


def test_mode_is_the_one_in_force_while_a_daemon_runs(stage: Stage) -> None:
    done = replace(make_round(step(applied=[receipt()])), started_time=TAKEN_AT, mode=Mode.APPLY)
    runs = Overlook(now=TAKEN_AT, configured=Mode.OBSERVE, last=status_after(done), runs=True)

    heads = [
        client_of(overseen(stage, overlook)).get("/").text.partition("<main")[0]
        for overlook in (runs, replace(runs, runs=False))
    ]

    assert "mode apply" in heads[0] and "mode observe" in heads[1]


def test_numbers_behind_a_cause_are_named_in_words(client: FlaskClient, content: Content) -> None:
    job_id = next(
        job.job_id
        for job in content.view().line
        if "queueing_delay_s" in content.explained(job.job_id).explained.first.evidence
    )
    (numbers, *_) = re.findall(r'<p class="faint evidence">(.*?)</p>', client.get(f"/jobs/{job_id}").text)

    assert "jobs ahead <b>" in numbers and re.search(r"queueing delay <b>[\d.]+ (min|h|d)</b>", numbers)
    assert "_" not in numbers


def test_rules_that_leave_jobs_alone_are_worded(client: FlaskClient, content: Content) -> None:
    held = next(job for job in content.view().line if job.left_alone_by == "not_held")

    line = client.get(f"/line?q={held.job_id}").text

    assert '<span class="faint" title="It is held. To release it: `scontrol release JOBID`.">held</span>' in line
    assert "not_held" not in client.get("/line").text
    assert re.search(r"\d+ jobs, not_held: It is held\.", Structure(client.get("/advice").text).text)
    assert (
        f"It is held. To release it: scontrol release {held.job_id}."
        in Structure(client.get(f"/jobs/{held.job_id}").text).text
    )


def test_without_files_pages_say_what_is_missing(stage: Stage, tmp_path: Path) -> None:
    content = Content(Reading(snapshot=stage.snapshot), Config(), journal=tmp_path / "none.sqlite")
    content.viewer.refresh()
    client = client_of(content)

    assert "none.sqlite: no such journal" in client.get("/gains").text
    assert "web.frontier_file" in client.get("/frontier").text
    assert "there is no daemon" in client.get("/daemon").text


def test_wrong_frontier_is_named_not_shown(stage: Stage, tmp_path: Path) -> None:
    wrong = tmp_path / "frontier.json"
    wrong.write_text('{"meta": {"schema": "sadvise.compare/1"}, "points": []}')
    content = replace(stage, settings=WebSettings(frontier_file=str(wrong))).content()
    answer = client_of(content).get("/frontier")

    assert answer.status_code == 503
    assert f"web.frontier_file: {wrong}: not the output of `sadvise tune --json`" in html.unescape(answer.text)


def test_cluster_that_cannot_be_read_is_a_page_and_then_a_note(stage: Stage, tmp_path: Path) -> None:
    gone = tmp_path / "snapshot.json"
    content = Content(Reading(snapshot=gone), Config())
    client = client_of(content)
    with pytest.raises(AdvisorError, match=r"snapshot\.json"):
        content.viewer.view()

    assert client.get("/").status_code == 503
    assert str(gone) in client.get("/line").text


def view_of(snapshot: Snapshot, job_id: int) -> Content:
    """Return content with a planned view of a snapshot, without planning it."""
    record = step(jobs=snapshot.jobs, judged=[change(job_id)]).record
    record = replace(record, snapshot=snapshot)
    held = lease(action=nice_action(job_id), undo=nice_action(job_id).swapped(), user="", due_time=TAKEN_AT + 60.0)
    job = snapshot.jobs_by_id[job_id]
    memory = replace(record.memory, leases=(replace(held, user=job.user, account=job.account),))
    planned = Planned(record=record, memory=memory, remembered=Remembered(note=job.name))
    content = Content(Reading(demo=True), Config())
    content.viewer._view = cluster_view(planned, NO_FORECASTS, source="demo", cluster=None, daemon=None)
    content.viewer._read_at = time.monotonic()
    return content


def named(text: str) -> Snapshot:
    """Return a cluster in which users, jobs, accounts, partitions, nodes and reasons have one name."""
    job = make_job(1, gang=make_gang(16), name=text, user=text, account=text, partitions=(text,), reason=text)
    cluster = make_cluster([job], leaves={text: ("n1", text)})
    nodes = tuple(replace(node, reason=text, state=text) for node in cluster.nodes)
    return replace(cluster, nodes=nodes, config=replace(cluster.config, cluster=text), unread=(text,))


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.text(HOSTILE + "ab=/&-!", min_size=1, max_size=12)
    | st.sampled_from(
        [
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "{{ 7*7 }}",
            "{% raw %}",
            "`</code><b>`",
            "javascript:alert(1)",
        ]
    )
)
def test_hostile_names_stay_text_on_every_page(text: str) -> None:
    hostile, plain = client_of(view_of(named(text), 1)), client_of(view_of(named("plain"), 1))

    for path in ("/", "/line", "/jobs/1", "/advice", "/changes", "/gains", "/models"):
        page, expected = Structure(hostile.get(path).text), Structure(plain.get(path).text)
        # Backticks in a sentence make code of what is between them, and nothing else.
        kinds = [[one for one in made.elements if one[0] != "code"] for made in (page, expected)]
        assert kinds[0] == kinds[1], path
        assert escaped(text) in page.text.replace("\n", " ") or path in ("/gains", "/models") or "`" in text, path
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u200b\ufeff]", page.text.replace("\r", "")), path
