"""The line is selected, sorted and paged as the address asks, whatever stands in it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.forecast import Interval
from advisor.domain.plan import Kind
from advisor.watch.cluster_view import WaitingJob
from advisor.web.line_selection import LARGEST_PAGE, PAGE_SIZE, SORTS, line_page, line_query

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
