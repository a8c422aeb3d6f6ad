"""The commands of the first evening: which are typed, and what counts as a fault."""

from tests.live.controller import Typed
from tests.live.walk import TypedStep, faults, walk


class Script:
    """A prompt that prints what it was given to type, and fails the first time for lines that begin with `test`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def type(self, line: str) -> Typed:
        self.lines.append(line)
        is_late = line.startswith("test") and self.lines.count(line) == 1
        return answer(line, printed="12\n", exit_status=int(is_late))


def answer(line: str = "sadvise check", *, printed: str = "", exit_status: int = 0) -> Typed:
    return Typed(line=line, exit_status=exit_status, printed=printed)


def test_command_waits_for_its_condition_and_takes_the_job_that_it_names() -> None:
    script = Script()

    list(walk(script, [TypedStep(line="sadvise explain JOBID", holds=(), awaits="test -e job")]))

    assert script.lines == ["test -e job", "test -e job", "sadvise explain 12"]


def test_answer_as_expected_has_no_fault() -> None:
    step = TypedStep(line="sadvise check", holds=("^lever",), exit_status=1)

    assert list(faults(step, answer(printed="lever nice", exit_status=1))) == []


def test_exit_status_traceback_and_missing_text_are_faults() -> None:
    found = list(
        faults(TypedStep(line="sadvise check", holds=("lever",)), answer(printed="Traceback (...)", exit_status=1))
    )

    assert [fault.partition(": ")[2][:12] for fault in found] == ["exit status ", "a traceback", "does not pri"]
