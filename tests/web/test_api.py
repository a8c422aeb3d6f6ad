"""The JSON API answers as its OpenAPI document says, and is read only."""

import json
from dataclasses import asdict
from typing import Any

import jsonschema
import pytest
from flask.testing import FlaskClient
from openapi_spec_validator import validate

from advisor.web.answers import openapi
from advisor.web.content import Content
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
