import pytest

from advisor.backends.releases import NEWEST, OLDEST, TRAITS, release_of, traits_of, version_in


@pytest.mark.parametrize(
    ("release", "known"),
    [
        ((22, 5), (22, 5)),
        ((24, 11), (24, 11)),
        ((25, 8), (25, 5)),
        ((27, 11), NEWEST),
        ((21, 8), OLDEST),
        ((0, 0), NEWEST),
    ],
)
def test_release_has_the_traits_of_the_last_known_one(release: tuple[int, int], known: tuple[int, int]) -> None:
    assert traits_of(release) == TRAITS[known]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8\n", "22.05.8"),
        ("slurm 25.11.7", "25.11.7"),
        ("slurm 26.05.0-0rc1", "26.05.0-0rc1"),
        ("", ""),
    ],
)
def test_version_is_found_in_what_commands_print(text: str, version: str) -> None:
    assert version_in(text) == version


@pytest.mark.parametrize(("version", "release"), [("22.05.8", (22, 5)), ("25.11", (25, 11)), ("x", (0, 0))])
def test_release_is_year_and_month(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release
