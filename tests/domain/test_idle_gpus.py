"""The settings of measurements, of which nothing but names and numbers comes into a query."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.idle_gpus import GpuReading, UtilisationSettings

NAMES = ("metric", "node_label", "gpu_label", "job_label")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prometheus": "http://prometheus.example.org"}, "prometheus must be https, or http on a loopback address"),
        ({"prometheus": "https://ann:secret@h"}, "prometheus must be a URL such as https://prometheus.example.org"),
        ({"prometheus": "prometheus.example.org:9090"}, "prometheus must be a URL such as"),
        ({"prometheus": "https://h:0"}, "prometheus must name a port above 0"),
        ({"prometheus": "https://h/a b"}, "prometheus must be a URL in ASCII"),
        ({"metric": ""}, "metric must be the name of a series"),
        ({"metric": 'up{job="a"}'}, "metric must be the name of a series"),
        ({"gpu_label": ""}, "gpu_label must be the name of a label"),
        ({"node_label": "instance)"}, "node_label must be the name of a label"),
        ({"job_label": "hpc-job"}, "job_label must be the name of a label"),
        ({"job_label": "gpu"}, "node_label, gpu_label and job_label must differ"),
        ({"idle_percent": 100.0}, "idle_percent must be at least 0 and below 100"),
        ({"idle_percent": -1.0}, "idle_percent must be at least 0 and below 100"),
        ({"idle_after_s": 60.0}, "idle_after_s must be at least 900 and at most 86400"),
        ({"timeout_s": 0.0}, "timeout_s must be from 1 to 120"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused_and_no_secret_is_shown(values: dict[str, str | float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as raised:
        UtilisationSettings(**values)  # type: ignore[arg-type]

    assert "secret" not in str(raised.value)


@given(st.sampled_from(NAMES), st.text(st.sampled_from("aZ_:9 \n\"'\\(){}[]=~,#é"), max_size=6))
def test_what_is_no_name_never_comes_into_a_query(name: str, text: str) -> None:
    try:
        UtilisationSettings(**{name: text})  # type: ignore[arg-type]
    except ValueError:
        return

    assert re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*", text) or (name, text) == ("job_label", "")


@pytest.mark.parametrize("wrong", [{"idle_s": -1.0}, {"idle_s": float("nan")}, {"idle_s": 1e9}, {"index": -1}], ids=str)
def test_a_reading_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="cannot be idle"):
        GpuReading(**{"node": "n1", "index": 0, "idle_s": 0.0, **wrong})  # type: ignore[arg-type]
