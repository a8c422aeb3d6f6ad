"""What a user declared of a job, in words."""

from advisor.domain.job import GpuRange, JobHints, Sensitivity
from advisor.view.request_words import hint_sentences


def test_hints_are_one_sentence_and_what_was_not_understood_another() -> None:
    hints = JobHints(
        model="bert",
        gpus=GpuRange(low=2, high=8),
        checkpoint_s=600.0,
        step_s=0.5,
        sensitivity=Sensitivity.HIGH,
        opted_out=True,
        wants_mail=True,
        unknown=("nonsense=3",),
    )

    known, unknown = hint_sentences(hints)

    label, text = known
    assert label == "hints"
    assert text == (
        "its user declares in --comment: sadvise is to leave it alone; it trains the model bert; "
        "it can run on 2 to 8 GPUs; it saves its state every 10 min; a step takes 0.5 s; its user wants mail; "
        "spreading it out costs much"
    )
    assert unknown == ("hints", "not understood in --comment: nonsense=3")


def test_job_without_hints_says_nothing_and_one_size_is_no_range() -> None:
    (one,) = hint_sentences(JobHints(gpus=GpuRange(low=4, high=4), sensitivity=Sensitivity.LOW))

    assert list(hint_sentences(JobHints())) == []
    assert one[1].endswith("it can run on 4 GPUs; spreading it out costs little")
