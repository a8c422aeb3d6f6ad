"""The JSON API, and which part of the line it and the page select."""

import json
from dataclasses import asdict, replace
from typing import Any

import jsonschema
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import validate

from advisor.domain.forecast import Interval
from advisor.domain.plan import Kind
from advisor.watch.cluster_view import WaitingJob
from advisor.web.answers import openapi
from advisor.web.content import Content
from advisor.web.line_selection import LARGEST_PAGE, PAGE_SIZE, SORTS, line_page, line_query
from tests.web.conftest import client_of
from tests.web.test_pages import named, view_of

PATHS = (
    "/clusters",
    "/cluster",
    "/line",
    "/advice",
    "/changes",
    "/gains",
    "/models",
    "/frontier",
    "/status",
    "/jobs/{job_id}",
)


def closed(schema: Any) -> Any:
    """Return a schema that allows no field it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(part) for name, part in schema.items()}
    return {"additionalProperties": False, **made} if "properties" in made else made


def schema_of(path: str, status: str = "200") -> dict[str, Any]:
    document = openapi()
    content = document["paths"][path]["get"]["responses"][status]["content"]
    schema: dict[str, Any] = closed({"components": document["components"], **content["application/json"]["schema"]})
    return schema


def test_document_is_valid_and_served(client: FlaskClient) -> None:
    document = client.get("/api/v1/openapi.json").json

    assert document is not None
    validate(document)
    assert document == json.loads(json.dumps(openapi()))
    assert set(document["paths"]) == set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_as_documented(client: FlaskClient, content: Content, path: str) -> None:
    answer = client.get("/api/v1" + path.format(job_id=content.view().line[0].job_id))

    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert answer.json is not None
    jsonschema.validate(answer.json, schema_of(path))


def test_a_field_too_many_is_found(client: FlaskClient) -> None:
    answer = client.get("/api/v1/line?size=1").json
    assert answer is not None
    answer["jobs"][0]["secret"] = 1

    with pytest.raises(jsonschema.ValidationError, match="secret"):
        jsonschema.validate(answer, schema_of("/line"))


def test_answers_hold_what_pages_show(client: FlaskClient, content: Content) -> None:
    seen = content.view()
    line = client.get("/api/v1/line?size=5&sort=wait&order=desc").json
    advice, changes, gains = (client.get(f"/api/v1/{name}").json for name in ("advice", "changes", "gains"))
    assert line and advice and changes and gains

    assert [job["wait_s"] for job in line["jobs"]] == sorted((job.wait_s for job in seen.line), reverse=True)[:5]
    assert advice["recommendations"] == [json.loads(json.dumps(asdict(row))) for row in seen.advice]
    assert [row["job_id"] for row in changes["changes"]] == [row.job_id for row in seen.in_effect]
    assert len(gains["days"]) == 14 and gains["total"]["jobs"] == 140


def test_hostile_names_are_json_in_ascii() -> None:
    hostile = '<b>\u202e\ud800"\n漢'
    answer = client_of(view_of(named(hostile), 1)).get("/api/v1/line")

    assert answer.data.isascii() and b"\n" not in answer.data[:-1]
    assert answer.json and answer.json["jobs"][0]["user"] == hostile
    jsonschema.validate(answer.json, schema_of("/line"))


@pytest.mark.parametrize(("path", "status"), [("/jobs/999999", 404), ("/nothing", 404), ("/jobs/x", 404)])
def test_faults_are_documents(client: FlaskClient, path: str, status: int) -> None:
    answer = client.get(f"/api/v1{path}")

    assert (answer.status_code, answer.mimetype) == (status, "application/json")
    assert answer.json is not None
    jsonschema.validate(answer.json, schema_of("/jobs/{job_id}", "404"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/api/v1/line", "/", "/line", "/api/v1/jobs/1"])
def test_nothing_is_written(client: FlaskClient, method: str, path: str) -> None:
    # A form is refused before its path is looked at.
    assert client.open(path, method=method).status_code in (403, 405)


JOB = WaitingJob(
    place=1,
    job_id=7,
    name="train",
    user="ann",
    account="lab",
    partition="gpu,long",
    gpus=4,
    gpu_type="a100",
    tasks=1,
    wait_s=60.0,
    limit_s=3600.0,
    run_s=None,
    start=None,
    slurms_start_time=None,
    reason="Priority",
    advice=(),
    in_effect=(),
    left_alone_by="",
)
LINE = (
    JOB,
    replace(JOB, place=2, job_id=8, user="bob", gpus=None, start=Interval(low=1.0, median=9.0, high=10.0)),
    replace(JOB, place=3, job_id=9, user="Ann", gpus=1, gpu_type="", start=Interval(low=1.0, median=2.0, high=10.0)),
    replace(JOB, place=4, job_id=10, partition="debug", reason="Resources", advice=(Kind.REORDER,)),
)


@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ({}, [7, 8, 9, 10]),
        ({"q": "ANN"}, [7, 9, 10]),
        ({"q": "8"}, [8]),
        ({"user": "ann"}, [7, 10]),
        ({"partition": "long"}, [7, 8, 9]),
        ({"partition": "lon"}, []),
        ({"type": "any"}, [9]),
        ({"reason": "Resources"}, [10]),
        ({"advised": "1"}, [10]),
        ({"sort": "gpus"}, [9, 7, 10, 8]),
        ({"sort": "gpus", "order": "desc"}, [7, 10, 9, 8]),
        ({"sort": "start"}, [9, 8, 7, 10]),
        ({"order": "desc"}, [10, 9, 8, 7]),
        ({"sort": "no such column"}, [7, 8, 9, 10]),
        ({"size": "2", "page": "2"}, [9, 10]),
        ({"size": "3", "page": "99"}, [10]),
    ],
    ids=str,
)
def test_query_selects_and_orders(query: dict[str, str], jobs: list[int]) -> None:
    assert [job.job_id for job in line_page(LINE, line_query(query)).jobs] == jobs


@given(
    query=st.dictionaries(
        st.sampled_from(
            ["q", "user", "account", "partition", "type", "reason", "advised", "sort", "order", "page", "size"]
        ),
        st.text(max_size=8) | st.sampled_from(["0", "-1", "1", "5", "999999", "1e9", "²", *SORTS]),
    )
)
def test_any_query_has_a_page_within_bounds(query: dict[str, str]) -> None:
    asked = line_query(query)
    page = line_page(LINE, asked)

    assert 1 <= page.page <= page.pages
    assert len(page.jobs) <= asked.size <= LARGEST_PAGE
    assert page.matching == len(LINE) or asked.filters


def test_all_pages_together_are_the_line() -> None:
    line = tuple(replace(JOB, place=number, job_id=number) for number in range(1, 2 * PAGE_SIZE + 2))

    pages = [line_page(line, line_query({"page": str(page)})) for page in (1, 2, 3)]

    assert [job.job_id for page in pages for job in page.jobs] == [job.job_id for job in line]
    assert [(page.first, page.pages) for page in pages] == [(1, 3), (PAGE_SIZE + 1, 3), (2 * PAGE_SIZE + 1, 3)]
