"""The commands of the first evening: which are typed, what counts as a fault, and how a page shows the answers."""

from tests.sim.building import make_trace
from tools.live.controller import Typed
from tools.live.evening_page import page
from tools.live.past import Past
from tools.live.walk import Step, faults, walk
from tools.live.window import Cut

CUT = Cut(seed=1, load=1.0, span_s=0.0, longest_s=3600.0, speedup=60.0)


class Script:
    """A prompt that prints what it was given to type, and fails the first time for lines that begin with `test`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def type(self, line: str) -> Typed:
        self.lines.append(line)
        is_late = line.startswith("test") and self.lines.count(line) == 1
        return answer(line, printed="12\n", exit_status=int(is_late))


def answer(line: str = "sadvise check", *, printed: str = "", exit_status: int = 0) -> Typed:
    return Typed(line=line, exit_status=exit_status, printed=printed, wall_s=1.25)


def test_command_waits_for_its_condition_and_takes_the_job_that_it_names() -> None:
    script = Script()

    list(walk(script, [Step(line="sadvise explain JOBID", holds=(), awaits="test -e job")]))

    assert script.lines == ["test -e job", "test -e job", "sadvise explain 12"]


def test_short_form_leaves_out_what_takes_a_package_and_types_what_is_quick() -> None:
    script = Script()
    steps = [
        Step(line="apt-get install", holds=(), short=""),
        Step(line="sadvise tune", holds=(), short="sadvise tune --jobs 2"),
        Step(line="sadvise check", holds=()),
    ]

    list(walk(script, steps, short=True))

    assert script.lines == ["sadvise tune --jobs 2", "sadvise check"]


def test_answer_as_expected_has_no_fault() -> None:
    step = Step(line="sadvise check", holds=("^lever",), exit_status=1)

    assert list(faults(step, answer(printed="lever nice", exit_status=1))) == []


def test_exit_status_traceback_and_missing_text_are_faults() -> None:
    found = list(faults(Step(line="sadvise check", holds=("lever",)), answer(printed="Traceback (...)", exit_status=1)))

    assert [fault.partition(": ")[2][:12] for fault in found] == ["exit status ", "a traceback", "does not pri"]


def test_page_shows_chosen_lines_and_cuts_long_ones() -> None:
    past = Past(trace=make_trace([{"submit_time": 0.0}, {"submit_time": 86_400.0}]), users=3, wall_s=200.0, faults=())
    steps = [
        (Step(line="sadvise check", holds=(), says="Look:", shown="^lever"), answer(printed="a\nb\nlever nice\nc\n")),
        (Step(line="sadvise journal", holds=()), answer("sadvise journal", printed="x" * 200)),
    ]

    text = page(past, CUT, steps)

    assert "2 jobs of 3 users" in text and "holds 1.0 days" in text
    block = text[text.index("Look:") :].splitlines()
    assert block[2:5] == ["```", "# sadvise check    (1.2 s)", "lever nice"]
    assert block[5:] == ["# sadvise journal    (1.2 s)", "x" * 120 + "...", "```"]
