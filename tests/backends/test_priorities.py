import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.priorities import decode_factors, read_priority_factors
from advisor.backends.process import Answer
from advisor.domain.particulars import PriorityFactors
from advisor.errors import DecodeError
from tests.backends.fake_slurm import Streaming

D = "@x"


def row(job_id: int, priority: int, *parts: str) -> str:
    return D.join((str(job_id), str(priority), *parts)) + f"{D}\n"


WEIGHTED = row(7, 1130, "100", "1000", "0", "20", "0", "0", "10", "-50", "cpu=12,gres/gpu=300")
FACTORS = PriorityFactors(
    site=100, age=1000, association=0, fair_share=20, job_size=0, partition=0, qos=10, nice=-50, tres=312
)


def test_weighted_parts_are_read() -> None:
    assert decode_factors(WEIGHTED, D) == {7: FACTORS}


def test_parts_that_slurm_does_not_give_are_none() -> None:
    assert decode_factors(row(7, 5, *[""] * 9), D) == {7: PriorityFactors()}


def test_partition_with_the_highest_priority_counts() -> None:
    text = row(7, 5, *["1"] * 9) + WEIGHTED + row(7, 6, *["2"] * 9)

    assert decode_factors(text, D) == {7: FACTORS}


@pytest.mark.parametrize("text", ["", "\n", "Unable to find jobs matching user/id(s) specified\n"])
def test_no_waiting_job_has_no_parts(text: str) -> None:
    assert decode_factors(text, D) == {}


@given(st.integers(1, len(WEIGHTED) - len(D) - 2))
def test_answer_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError, match="incomplete answer"):
        decode_factors(WEIGHTED[:cut], D)


class Sprio(Streaming):
    """Answers sprio with one row for each of some jobs, in the delimiter it is asked for."""

    def __init__(self, *job_ids: int, cluster: str | None = None) -> None:
        self.cluster = cluster
        self.asked: list[tuple[str, ...]] = []
        self._job_ids = job_ids

    def ask(self, program: str, *arguments: str) -> Answer:
        self.asked.append((program, *arguments))
        layout = arguments[-1]
        delimiter = layout[2 : layout.index("%Y")]
        rows = [delimiter.join([str(job_id), *["1"] * 10]) + f"{delimiter}\n" for job_id in self._job_ids]
        return Answer(output="".join(rows).encode())


def test_only_asked_jobs_are_returned_by_id() -> None:
    sprio = Sprio(9, 8, 7)

    found = read_priority_factors([7, 9, 12], cluster=None, timeout_s=5, commands=sprio)

    assert list(found) == [7, 9]
    assert sprio.asked[0][:3] == ("sprio", "-h", "--local")


@pytest.mark.parametrize(("job_ids", "named"), [([7], True), ([7, 8], False)])
def test_one_job_is_asked_for_by_name(job_ids: list[int], named: bool) -> None:
    sprio = Sprio(7, cluster="green")

    read_priority_factors(job_ids, cluster="green", timeout_s=5, commands=sprio)

    assert ("-j7" in sprio.asked[0]) is named
    assert "--local" not in sprio.asked[0]


def test_no_job_costs_no_request() -> None:
    sprio = Sprio(7)

    assert read_priority_factors([], cluster=None, timeout_s=5, commands=sprio) == {}
    assert sprio.asked == []
