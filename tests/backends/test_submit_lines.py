"""What accounting tells of the options of a job, whatever users wrote into their lines."""

import pytest

from advisor.backends.submit_lines import MOST_JOBS, read_submitted, submitted_of
from advisor.domain.actions import NodeRange
from advisor.planning.strays import Submitted
from tests.backends.fake_slurm import FakeSlurm


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("sbatch job.sh", Submitted()),
        ("sbatch -N1-4 --gres=gpu:1 job.sh", Submitted(nodes=NodeRange(low=1, high=4))),
        ("sbatch -N 2 job.sh", Submitted(nodes=NodeRange(low=2, high=2))),
        ("/usr/bin/sbatch --nodes=1-2 --nice=137 --switches=1@00:30:00 job.sh",
         Submitted(nodes=NodeRange(low=1, high=2), nice=137, has_switches=True)),
        ("srun --nodes 3-4 --switches 1 hostname", Submitted(nodes=NodeRange(low=3, high=4), has_switches=True)),
        ("salloc --nice", Submitted(nice=100)),
        ("sbatch --nice=-20 job.sh", Submitted(nice=-20)),
        ("sbatch --nice job.sh", Submitted(nice=100)),
        ("sbatch --nicely=5 -N1k --nodes=few --switchesoff job.sh", Submitted()),
        ("", Submitted()),
    ],
)  # fmt: skip
def test_options_are_read_from_the_line(line: str, options: Submitted) -> None:
    assert submitted_of(line) == options


def test_jobs_are_asked_for_by_id_and_the_newest_where_there_are_too_many() -> None:
    ids = range(1, MOST_JOBS + 3)
    asked = ",".join(map(str, ids[2:]))
    slurm = FakeSlurm(texts={f"sacct -a -n -X -P -j {asked} -o JobIDRaw,SubmitLine": "9|sbatch -N2\n1|sbatch -N3\n"})

    assert read_submitted(slurm, ids) == {9: Submitted(nodes=NodeRange(low=2, high=2))}
    assert read_submitted(slurm, []) == {}


def test_line_that_looks_like_the_row_of_another_job_hides_that_job_and_forges_nothing() -> None:
    # As 22.05 prints the line of: sbatch --comment=$'a|b\n4|sbatch -N7' job.sh
    answer = "3|sbatch -N1-2\n4|sbatch -N1\n7|sbatch --comment=a|b\n4|sbatch -N7 job.sh\n²|sbatch -N1\n|x\nno row\n"
    slurm = FakeSlurm(texts={"sacct -a -n -X -P -j 3,4,7 -o JobIDRaw,SubmitLine": answer})

    assert read_submitted(slurm, [3, 4, 7]) == {3: Submitted(nodes=NodeRange(low=1, high=2)), 7: Submitted()}
