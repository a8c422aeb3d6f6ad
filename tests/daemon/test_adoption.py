"""The daemon moves to settings that `sadvise tune` chose twice, only where allowed, says so, and can be taken back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from advisor.config import Config, adoption_file, effective_values, load_config
from advisor.daemon.service import Service
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.mode import Mode
from advisor.domain.tune_verdict import PRESETS, Adoption, Preset, Tuned, TuneVerdict
from advisor.domain.units import DAY_S
from advisor.journal.base import SETTINGS
from advisor.site.digests import weekly_digest
from advisor.site.status_file import status_after
from advisor.watch.changes import revert_settings
from advisor.watch.reading import Reading
from tests.daemon.rounds import Site
from tests.examples import examples

MOVED_KEYS = {"guard.fairness", "planning.priority_decades"}
LANE = TuneVerdict(
    jobs=40, in_force="lift trade 2", preset="gentle", setting="lift lane", fairness="lane", priority_decades=2.0,
    percent=-4.0, low=-6.0, high=-2.0, users=9, worse=1, beyond_chance=0, beyond_chance_now=0,
)  # fmt: skip
USER = replace(LANE, setting="lift user", fairness="user")
TRADE = replace(LANE, preset="trade", setting="lift trade 4", fairness="trade", priority_decades=4.0)
Weeks = list[TuneVerdict | None]


def allow(site: Site, presets: str, more: str = "") -> Config:
    """Write a configuration that allows some presets, and return what is in force by it."""
    (site.folder / "sadvise.toml").write_text(
        f'[journal]\nfile = "{site.folder}/journal.sqlite"\n{more}\n'
        f'[daemon]\nruntime_folder = "{site.folder}"\ntune_presets = "{presets}"\n'
    )
    return site.config()


def live(site: Site, service: Service, weeks: Weeks, *, apart_s: float = 7 * DAY_S) -> None:
    """Let weekly runs choose settings, each followed by a round and the reload that is due then."""
    for move in weeks:
        site.cluster.now += apart_s
        site.clock.advance(apart_s)
        service.note_tune(Tuned(TuneVerdict(jobs=40, in_force="slurm"), move))
        service.round()
        if service.is_outdated:
            service.reconfigure(site.config())
    service.round()


def fairness_of(service: Service) -> str:
    return service.config.guard.fairness


@pytest.fixture
def served(site: Site) -> Callable[..., Service]:
    """Return what starts a daemon that is allowed some presets."""

    def serve(presets: str = "gentle, trade", more: str = "") -> Service:
        service = site.service()
        service.reconfigure(allow(site, presets, more))
        return service

    return serve


@pytest.mark.parametrize(
    ("presets", "weeks", "apart_days", "fairness"),
    [
        ("gentle", [LANE, LANE], 7, "lane"),
        ("gentle, trade", [LANE, LANE, TRADE, TRADE], 7, "trade"),
        # One run is none, and so are two with another choice, or none, between.
        ("gentle", [LANE], 7, "trade"),
        ("gentle", [LANE, USER], 7, "trade"),
        ("gentle", [LANE, None, LANE], 7, "trade"),
        ("gentle", [LANE, LANE], 1, "trade"),
        ("gentle", [LANE, LANE], 14, "trade"),
        # A move is no half of the next one.
        ("gentle", [LANE, LANE, USER], 7, "lane"),
        # A gain that chance explains, more users worse beyond chance, or what is in force already.
        ("gentle", [replace(LANE, high=0.1)] * 3, 7, "trade"),
        ("gentle", [replace(LANE, beyond_chance=1)] * 3, 7, "trade"),
        ("gentle", [replace(LANE, in_force="lift lane")] * 3, 7, "trade"),
        # What is not allowed.
        ("", [LANE, LANE, TRADE, TRADE], 7, "trade"),
        ("free, trade", [LANE, LANE, LANE], 7, "trade"),
        ("gentle", [replace(LANE, fairness="site")] * 3, 7, "trade"),
    ],
)
def test_two_successive_runs_move_a_daemon_within_its_presets(
    site: Site, served: Callable[..., Service], presets: str, weeks: Weeks, apart_days: int, fairness: str
) -> None:
    service = served(presets)
    before = dict(effective_values_of(service.config))

    live(site, service, weeks, apart_s=apart_days * DAY_S)

    after = effective_values_of(service.config)
    assert fairness_of(service) == service._outfit.applier.cycle.limits.fairness == fairness
    assert {key for key, value in after.items() if value != before[key]} <= MOVED_KEYS
    assert [status_after(done).settings != "" for done in site.told[-1:]] == [service.config.adoption is not None]


def effective_values_of(config: Config) -> dict[str, Any]:
    return {each.key: each.value for each in effective_values(config)}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_daemon_that_does_not_apply_stays(site: Site, served: Callable[..., Service], mode: Mode) -> None:
    site.mode = mode
    service = served()

    live(site, service, [LANE, LANE, LANE])

    assert service.config.adoption is None and site.audited(SETTINGS) == []


def test_an_experiment_keeps_its_settings(site: Site, served: Callable[..., Service]) -> None:
    service = served()
    runs = ExperimentSettings(by="day", name="a", start="2026-03-01", end="2026-04-01")
    service.reconfigure(replace(service.config, experiment=runs))

    live(site, service, [LANE, LANE, LANE])

    assert service.config.adoption is None


def test_a_move_is_audited_first_and_says_what_is_in_force_since_when_why_and_in_place_of_what(
    site: Site, served: Callable[..., Service]
) -> None:
    service = served()
    live(site, service, [TRADE, TRADE])

    (row,) = site.audited(SETTINGS)
    words = status_after(site.told[-1]).settings
    assert (row["adopted"], row["fairness"], row["priority_decades"]) == ("lift trade 4", "trade", 4.0)
    assert (row["configured_fairness"], row["configured_decades"]) == ("trade", 2.0)
    assert (
        words.startswith("preset trade since ") and 'guard.fairness = "trade", planning.priority_decades = 4' in words
    )
    assert 'in place of "trade" and 2; chosen in two weekly runs' in words and "-4.0 % (-6.0 to -2.0)" in words
    assert words.endswith("to undo: `sadvise revert --settings`")
    with service._keeper.held() as journal:
        assert f"In force: {words}." in weekly_digest(journal, service.config, site.cluster.now).text

    later = site.service()
    later.reconfigure(allow(site, "trade"))
    later.round()
    assert later.config.planning.priority_decades == 4.0 and status_after(site.told[-1]).settings == words
    assert {
        value.key for value in effective_values(later.config) if value.origin == str(adoption_file(later.config))
    } == (MOVED_KEYS)


@pytest.mark.parametrize(
    ("presets", "more"),
    [("gentle, trade", '[guard]\nfairness = "account"'), ("trade", ""), ("", "")],
    ids=["edited", "not listed", "none listed"],
)
def test_settings_are_dropped_where_they_are_edited_or_no_longer_allowed_and_stay_dropped(
    site: Site, served: Callable[..., Service], presets: str, more: str
) -> None:
    service = served()
    live(site, service, [LANE, LANE])
    assert fairness_of(service) == "lane"

    service.reconfigure(allow(site, presets, more))
    service.round()
    assert fairness_of(service) == ("account" if more else "trade")
    service.reconfigure(allow(site, "gentle, trade"))

    assert fairness_of(service) == "trade" and not adoption_file(service.config).exists()
    assert [row.get("dropped_by") for row in site.audited(SETTINGS)] == [None, "sadvised"]
    with service._keeper.held() as journal:
        assert "In force: what is configured, since " in weekly_digest(journal, service.config, site.cluster.now).text


def test_one_command_takes_a_move_back_and_two_more_runs_make_it_again(
    site: Site, served: Callable[..., Service]
) -> None:
    service = served("gentle")
    live(site, service, [LANE, LANE])
    service.close()

    first, again = (revert_settings(Reading(config=site.folder / "sadvise.toml"), None) for _ in range(2))
    live(site, service, [LANE])

    assert "those configured, from the next round on" in first and "those configured are in force" in again
    assert fairness_of(service) == "trade"
    assert [row["why"] for row in site.audited(SETTINGS)][1:] == ["sadvise revert --settings"]
    live(site, service, [LANE])
    assert fairness_of(service) == "lane"


ADOPTIONS = st.builds(
    Adoption,
    fairness=st.sampled_from(["user", "account", "lane", "trade", "site", "x", ""]),
    priority_decades=st.floats() | st.sampled_from([0.0, 2.0, 4.0]),
    configured_fairness=st.sampled_from(["trade", "user"]),
    configured_decades=st.sampled_from([2.0, 4.0]),
    since_time=st.just(0.0),
    why=st.text(max_size=5),
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    allowed=st.sets(st.sampled_from(Preset)),
    content=st.binary(max_size=40) | ADOPTIONS.map(TypeAdapter(Adoption).dump_json),
)
def test_whatever_a_file_holds_it_sets_no_more_than_the_presets_allow(
    tmp_path: Path, allowed: set[Preset], content: bytes
) -> None:
    path = tmp_path / "sadvise.toml"
    text = f'[journal]\nfile = "{tmp_path}/journal.sqlite"\n[daemon]\ntune_presets = "{", ".join(allowed)}"\n'
    path.write_text(text)
    (tmp_path / "adopted.json").unlink(missing_ok=True)
    configured = load_config(path, {})

    (tmp_path / "adopted.json").write_bytes(content)
    config = load_config(path, {})

    before, after = effective_values_of(configured), effective_values_of(config)
    assert {key for key, value in after.items() if value != before[key]} <= MOVED_KEYS
    if config.adoption is None:
        assert before == after and bool(config.not_adopted) is bool(allowed)
    else:
        assert PRESETS[config.guard.fairness] in allowed
    assert "in force" in config.not_adopted or not config.not_adopted


def test_a_damaged_file_means_the_configured_settings_and_the_status_says_so(
    site: Site, served: Callable[..., Service]
) -> None:
    live(site, served(), [LANE, LANE])
    adoption_file(site.config()).write_text("{")

    service = site.service()
    service.reconfigure(allow(site, "gentle"))
    service.round()

    assert fairness_of(service) == "trade"
    assert status_after(site.told[-1]).settings == (
        f"{site.folder}/adopted.json: cannot be read; the configured settings are in force"
    )
