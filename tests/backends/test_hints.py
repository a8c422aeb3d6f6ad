import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.hints import hints
from advisor.domain.job import GpuRange, JobHints, Sensitivity


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        (
            "sadvise: model=bert gpus=2-8 ckpt=300 step=0.31 sensitivity=high off",
            JobHints(
                model="bert",
                gpus=GpuRange(low=2, high=8),
                checkpoint_s=300.0,
                step_s=0.31,
                sensitivity=Sensitivity.HIGH,
                opted_out=True,
            ),
        ),
        ("sadvise:model=bert,gpus=4", JobHints(model="bert", gpus=GpuRange(low=4, high=4))),
        ("for paper 3 sadvise: gpus=1-2; urgent off", JobHints(gpus=GpuRange(low=1, high=2))),
        ("SADVISE: OFF", JobHints(opted_out=True)),
        ("sadvise: sensitivity=LOW", JobHints(sensitivity=Sensitivity.LOW)),
        ("sadvise:", JobHints()),
        ("off", JobHints()),
        ("notsadvise: off", JobHints()),
        ("", JobHints()),
    ],
)
def test_declared_words_are_read(comment: str, found: JobHints) -> None:
    assert hints(comment) == found


@pytest.mark.parametrize(
    "word",
    [
        "gpus=8-2",
        "gpus=0",
        "gpus=many",
        "ckpt=soon",
        "step=0",
        "step=nan",
        "sensitivity=extreme",
        "model=",
        "off=1",
        "elastic=2-8",
        "fast",
        "model=" + "x" * 30 + "é\x1b",
    ],
)
def test_word_that_cannot_be_read_is_kept_as_unknown(word: str) -> None:
    found = hints(f"sadvise: {word} ckpt=5")

    assert found == JobHints(checkpoint_s=5.0, unknown=(word,)) or found.model == word.removeprefix("model=")


def test_unknown_words_are_bounded() -> None:
    found = hints("sadvise: " + " ".join(f"{number}{'y' * 100}" for number in range(50)))

    assert len(found.unknown) == 8
    assert max(map(len, found.unknown)) == 40


@given(st.text())
def test_any_comment_is_read(comment: str) -> None:
    assert isinstance(hints(comment), JobHints)
    assert isinstance(hints(f"sadvise: {comment}"), JobHints)
