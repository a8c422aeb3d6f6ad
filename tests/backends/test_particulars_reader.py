"""What is asked about one job: recorded answers of Slurm 22.05, and answers that are none."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.assoc_text import decode_associations
from advisor.backends.particulars_reader import (
    decode_factors,
    decode_fair_share,
    decode_licences,
    reached_limit,
    read_particulars,
    read_priority_factors,
)
from advisor.backends.process import Answer
from advisor.backends.reservations import decode_reservations
from advisor.domain.job import Job
from advisor.domain.particulars import (
    AccountUse,
    FairShare,
    LicenceUse,
    Particulars,
    PriorityFactors,
    ReachedLimit,
    Reservation,
)
from advisor.errors import DecodeError, SlurmError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm, Streaming
from tests.builders import make_config, make_job

# Associations and QOS with limits that jobs of `games` had reached.
RECORDED = (Path(__file__).parent.parent / "recorded" / "22.05" / "assoc_mgr_reached.txt").read_text()
RESERVATIONS = (
    "ReservationName=exam StartTime=1795694748 EndTime=1795698348 Duration=01:00:00 Nodes=n03 NodeCnt=1 CoreCnt=16 "
    "Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=16 Users=games State=INACTIVE\n"
    "ReservationName=service StartTime=1795685167 EndTime=1795712748 Nodes=n[01-02] Flags=MAINT,IGNORE_JOBS TRES=cpu=32"
    " Users=root State=ACTIVE\n"
)
SHARES = (
    "root||0.000000|1.000000\n physics||0.250000|0.500000\n  vision||0.500000|0.800000\n"
    "   vision|games|1.000000|0.250000\n language||0.750000|0.000000\n  language|games|0.000000|0.300000\n"
)
LICENCES = "LicenseName=matlab Total=4 Used=3 Free=1 Reserved=0 Remote=no\n"


def job_of(reason: str, account: str = "vision", qos: str = "normal") -> Job:
    return make_job(7, user="games", account=account, qos=qos, reason=reason, partitions=("gpu",))


@pytest.mark.parametrize(
    ("job", "limit"),
    [
        (
            job_of("AssocGrpGRES", "capped"),
            ReachedLimit(name="GrpTRES", tres="gres/gpu", most=1, used=1, account="capped"),
        ),
        (
            job_of("AssocMaxJobsLimit", "onejob"),
            ReachedLimit(name="MaxJobs", most=1, used=1, account="onejob", user="games"),
        ),
        (
            job_of("AssocMaxGRESPerJob", "tight"),
            ReachedLimit(name="MaxTRESPJ", tres="gres/gpu", most=1, account="tight", user="games"),
        ),
        (
            job_of("AssocMaxWallDurationPerJobLimit", "tight"),
            ReachedLimit(name="MaxWallPJ", most=30, account="tight", user="games"),
        ),
        (
            job_of("QOSGrpGRES", qos="grpq"),
            ReachedLimit(name="GrpTRES", tres="gres/gpu", most=2, used=2, qos="grpq"),
        ),
        (
            job_of("QOSMaxGRESPerUser", qos="smallq"),
            ReachedLimit(name="MaxTRESPU", tres="gres/gpu", most=2, used=1, qos="smallq", user="games"),
        ),
        (
            job_of("QOSMaxJobsPerUserLimit", qos="jobsq"),
            ReachedLimit(name="MaxJobsPU", most=1, used=1, qos="jobsq", user="games"),
        ),
        (
            job_of("QOSMaxGRESPerJob", qos="pjq"),
            ReachedLimit(name="MaxTRESPJ", tres="gres/gpu", most=1, qos="pjq"),
        ),
        (job_of("QOSMaxWallDurationPerJobLimit", qos="wallq"), ReachedLimit(name="MaxWallPJ", most=5, qos="wallq")),
        (job_of("QOSGrpCpuLimit", qos="grpq"), None),
        (job_of("MaxGRESPerAccount", qos="grpq"), None),
        (job_of("QOSUsageThreshold"), None),
        (job_of("AssocGrpGRES", "nobody"), None),
    ],
    ids=lambda value: value.reason if isinstance(value, Job) else "",
)
def test_limit_that_slurm_names_is_found_with_its_use(job: Job, limit: ReachedLimit | None) -> None:
    assert reached_limit(job, decode_associations(RECORDED), [job.qos]) == limit


def test_reservations_are_read_with_what_they_take() -> None:
    service, exam = decode_reservations(RESERVATIONS)

    assert exam == Reservation(name="exam", start_time=1795694748.0, end_time=1795698348.0, nodes=("n03",), cpus=16)
    assert (service.nodes, service.cpus, service.is_maintenance) == (("n01", "n02"), 32, True)


@pytest.mark.parametrize("text", ["", "No reservations in the system\n"])
def test_cluster_without_reservations_has_none(text: str) -> None:
    assert decode_reservations(text) == ()


def test_share_is_that_of_the_account_of_the_job_and_of_those_above() -> None:
    found = decode_fair_share(SHARES, account="vision", user="games")
    without = decode_fair_share(SHARES, account="language", user="games")

    accounts = (AccountUse(name="vision", used_of_share=1.6), AccountUse(name="physics", used_of_share=2.0))
    assert found == FairShare(user=AccountUse(name="games", used_of_share=0.25), accounts=accounts)
    assert without is not None and without.user.used_of_share == math.inf
    assert without.accounts == (AccountUse(name="language", used_of_share=0.0),)
    assert decode_fair_share(SHARES, account="vision", user="mail") is None


def test_licences_are_those_that_the_job_asks_for() -> None:
    asked = decode_licences("matlab:2,elsewhere@far:1\n", LICENCES)

    assert asked == (LicenceUse(name="matlab", asked=2, total=4, free=1),)
    assert decode_licences("(null)\n", LICENCES) == ()


@pytest.mark.parametrize(
    ("shown", "free"),
    [("Used=0 Free=4 Reserved=3", 1), ("Used=0 Free=1 Reserved=3", 1), ("Used=1 Free=3 Reserved=3", 0)],
)
def test_reserved_licences_are_not_free(shown: str, free: int) -> None:
    (licence,) = decode_licences("ansys:2", f"LicenseName=ansys Total=4 {shown} Remote=no\n")

    assert (licence.free, licence.reserved) == (free, 3)


@given(st.text(max_size=200))
def test_answers_that_are_none_are_refused_or_hold_nothing(text: str) -> None:
    for decode in (
        decode_reservations,
        lambda answer: decode_fair_share(answer, account="vision", user="games"),
        lambda answer: decode_licences("matlab", answer),
        lambda answer: decode_licences(answer, LICENCES),
    ):
        with suppress(DecodeError):
            assert not decode(text) or "matlab" in text


CONFIG = replace(make_config(priority_weights={"fair_share": 100}), priority_decay_half_life_s=600.0)
ASKED_LIMITS = "scontrol -o show assoc_mgr users=games flags=assoc,qos"
ASKED_SHARES = "sshare -h -P -u games -o Account,User,NormShares,EffectvUsage"
ASKED_RESERVATIONS = "scontrol -o show reservation"
DOWN = SlurmUnavailableError("no answer")


class Slurm(FakeSlurm):
    """Answers as given; sprio, whose format is never the same, knows no job."""

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        if program == "sprio":
            self.texts[" ".join((program, *arguments))] = ""
        return super().ask(program, *arguments)


def asked(job: Job, texts: Mapping[str, str | SlurmError]) -> tuple[Particulars, list[str]]:
    """Return what is known of a job, and the commands that were asked."""
    slurm = Slurm(texts=dict(texts))
    return read_particulars(slurm, job, CONFIG), [" ".join(words[:4]) for words in slurm.asked]


def test_only_what_matters_to_the_job_is_asked() -> None:
    shares = SHARES.replace("vision|games", "capped|games").replace("  vision|", "  capped|")
    answers = {ASKED_SHARES: shares, ASKED_RESERVATIONS: RESERVATIONS, ASKED_LIMITS: RECORDED}
    limited, wide = asked(job_of("AssocGrpGRES", "capped"), answers)
    held, narrow = asked(replace(job_of("JobHeldUser"), held=True), answers)

    assert limited.limit is not None and limited.unread == ()
    assert [words.split()[0] for words in wide] == ["sprio", "sshare", "scontrol", "scontrol"]
    assert narrow == [] and held.unread == ()


def test_without_slurmdbd_one_line_says_so() -> None:
    answers = {ASKED_SHARES: "", ASKED_RESERVATIONS: "No reservations in the system\n"}
    known, _ = asked(job_of("Priority"), answers)

    (line,) = known.unread
    assert line == "fair share: slurmctld shows no account of its user, as it does without slurmdbd"


def test_what_fails_is_a_line_and_the_rest_is_read() -> None:
    answers: dict[str, str | SlurmError] = {ASKED_SHARES: DOWN, ASKED_RESERVATIONS: RESERVATIONS, ASKED_LIMITS: DOWN}
    known, _ = asked(job_of("AssocGrpGRES", "capped"), answers)

    assert known.unread == ("fair share: no answer", "the limit that Slurm names: no answer")
    assert known.reservations is not None and len(known.reservations) == 2


@pytest.mark.parametrize("user", ["-u", "a,b", "a b", "--format=x", "x\ny"])
def test_user_name_is_never_an_option_nor_two_names(user: str) -> None:
    slurm = Slurm(texts={ASKED_RESERVATIONS: "", "scontrol -o show assoc_mgr flags=assoc,qos": RECORDED})

    read_particulars(slurm, replace(job_of("AssocGrpGRES"), user=user), CONFIG)

    assert not any(user in words for command in slurm.asked for words in command)


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
    """Answers sprio with a row for each of two jobs, in the delimiter it is asked for."""

    def __init__(self, cluster: str | None) -> None:
        self.cluster = cluster
        self.asked: list[tuple[str, ...]] = []

    def ask(self, program: str, *arguments: str) -> Answer:
        self.asked.append((program, *arguments))
        layout = arguments[-1]
        delimiter = layout[2 : layout.index("%Y")]
        rows = [delimiter.join([str(job_id), *["1"] * 10]) + f"{delimiter}\n" for job_id in (8, 7)]
        return Answer(output="".join(rows).encode())


@pytest.mark.parametrize("cluster", [None, "green"])
def test_parts_of_one_job_are_asked_for_by_its_id(cluster: str | None) -> None:
    sprio = Sprio(cluster)

    factors = read_priority_factors(sprio, 7)

    assert factors is not None and factors.age == 1
    assert "-j7" in sprio.asked[0] and ("--local" in sprio.asked[0]) is (cluster is None)
    assert read_priority_factors(sprio, 9) is None
