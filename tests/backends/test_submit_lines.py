"""What accounting tells of the options of a job, whatever users wrote into their lines."""

import pytest

from advisor.backends.process import Answer
from advisor.backends.submit_lines import MOST_JOBS, read_submitted, submitted_of
from advisor.domain.actions import NodeRange
from advisor.errors import DecodeError
from advisor.planning.strays import Submitted
from tests.backends.fake_slurm import FakeSlurm


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("sbatch job.sh", Submitted()),
        ("sbatch -N1-4 --gres=gpu:1 job.sh", Submitted(nodes=NodeRange(low=1, high=4))),
        ("sbatch -N2-7 -n2 job.sh", Submitted(nodes=NodeRange(low=2, high=2))),
        ("sbatch --ntasks=8 --nodes=2-7 -n", Submitted(nodes=NodeRange(low=2, high=7))),
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


def lines_of(**lines: str) -> FakeSlurm:
    return FakeSlurm(ended=[{"JobIDRaw": name[1:], "SubmitLine": line} for name, line in lines.items()])


def test_jobs_are_asked_for_by_id_and_the_newest_where_there_are_too_many() -> None:
    slurm, ids = lines_of(j9="sbatch -N2", j1="sbatch -N3"), range(1, MOST_JOBS + 3)

    read = read_submitted(slurm, ids)

    assert read == {9: Submitted(nodes=NodeRange(low=2, high=2))}
    assert slurm.asked[0][slurm.asked[0].index("-j") + 1] == ",".join(map(str, ids[2:]))
    assert read_submitted(slurm, []) == {}


def test_line_that_looks_like_the_row_of_another_job_is_a_line_of_its_own_job() -> None:
    slurm = lines_of(j3="sbatch -N1-2", j7="sbatch --comment=a|b\n4|sbatch -N7\n²|sbatch -N1\n|x\nno row job.sh")

    read = read_submitted(slurm, [3, 4, 7])

    assert read == {3: Submitted(nodes=NodeRange(low=1, high=2)), 7: Submitted(nodes=NodeRange(low=7, high=7))}


class Watched(FakeSlurm):
    """A sacct whose delimiter a user reads in time to write with it."""

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer with the delimiter in the place of a mark."""
        delimiter = next(each for each in arguments if each.startswith("--delimiter=")).partition("=")[2]
        return Answer(output=super().ask(program, *arguments).output.replace(b"MARK", delimiter.encode()))


def test_a_delimiter_seen_in_time_hides_the_lines_of_a_job_and_forges_none() -> None:
    ended = [{"JobIDRaw": "3", "SubmitLine": "a"}, {"JobIDRaw": "7", "SubmitLine": "bMARK\n3MARKsbatch -N9"}]

    assert read_submitted(Watched(ended=ended), [3, 7]) == {7: Submitted()}


@pytest.mark.parametrize("line", ["aMARK", "aMARK\nxMARKb", "aMARK\n²MARKb"])
def test_an_answer_whose_rows_do_not_fit_is_refused(line: str) -> None:
    with pytest.raises(DecodeError, match="incomplete answer"):
        read_submitted(Watched(ended=[{"JobIDRaw": "7", "SubmitLine": line}]), [7])
