"""What a memo holds after any rounds is what a first round would compute."""

from collections.abc import Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.memo import BATCH, Memo

ROUNDS = st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 2)), max_size=6)


@given(ROUNDS)
def test_each_round_computes_what_changed_since_the_last_and_returns_what_a_first_one_would(
    rounds: list[dict[int, int]],
) -> None:
    memo, last = Memo[int, int, tuple[int, int]](), dict[int, int]()
    for bases in rounds:
        computed = dict[int, int]()

        def compute(fresh: Mapping[int, int], computed: dict[int, int] = computed) -> Iterator[tuple[int, int]]:
            computed |= fresh
            return iter(fresh.items())

        values = memo.fill([*bases], bases.values(), compute)

        assert values == [*bases.items()]
        assert computed == {key: basis for key, basis in bases.items() if last.get(key) != basis}
        last = bases


def test_a_key_that_comes_again_is_computed_once() -> None:
    asked: list[list[str]] = []

    def compute(fresh: Mapping[str, int]) -> Iterator[str]:
        asked.append([*fresh])
        return map(str.upper, fresh)

    values = Memo[str, int, str]().fill(["b", "a", "b"], [0, 0, 0], compute)

    assert values == ["B", "A", "B"]
    assert asked == [["b", "a"]]


def test_value_that_is_the_next_basis_is_no_reason_to_keep_it() -> None:
    memo, one, two = Memo[str, str, str](), "one", "two"

    first = memo.fill(["a"], [one], lambda _: [two])
    second = memo.fill(["a"], [two], lambda _: [one])

    assert (first, second) == ([two], [one])


def test_what_is_new_is_computed_in_batches() -> None:
    sizes: list[int] = []

    def compute(fresh: Mapping[int, None]) -> Mapping[int, None]:
        sizes.append(len(fresh))
        return fresh

    values = Memo[int, None, int]().fill(range(BATCH + 2), [None] * (BATCH + 2), compute)

    assert values == [*range(BATCH + 2)]
    assert sizes == [BATCH, 2]
