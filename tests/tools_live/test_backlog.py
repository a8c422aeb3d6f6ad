"""Fields of jobs before a change and after it was reverted."""

from pathlib import Path

from tools.live.twins import differences, fields_of

RECORDED = Path(__file__).parents[1] / "recorded" / "22.05" / "scontrol_job_oneline.txt"
SHOWN = "JobId=7 JobName=a Nice=0 TimeLimit=00:05:00 NumNodes=1-2 TRES=cpu=1,node=1 Features=(null) Command=/a b=c"


def test_the_fields_that_changes_show_in_are_read() -> None:
    fields = fields_of(SHOWN)

    assert fields == {
        "Nice": "0", "TimeLimit": "00:05:00", "NumNodes": "1-2", "Features": "(null)", "TRES": "cpu=1,node=1"
    }  # fmt: skip
    assert {"Nice", "TimeLimit", "NumNodes"} <= fields_of(RECORDED.read_text().splitlines()[0]).keys()


def test_a_field_that_was_left_changed_is_named() -> None:
    after = fields_of(SHOWN.replace("Nice=0", "Nice=-5"))

    assert list(differences(7, fields_of(SHOWN), fields_of(SHOWN))) == []
    assert list(differences(7, fields_of(SHOWN), after)) == ["job 7 has Nice=-5, submitted was 0"]
