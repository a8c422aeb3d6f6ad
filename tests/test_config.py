"""sadvise.toml: layers, origins, and complaints that name the file, the key and what to do."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.config import (
    DEFAULT,
    SIZE_LIMIT_BYTES,
    Config,
    describe,
    effective_values,
    example_toml,
    load_config,
    variable_of,
)
from advisor.domain.mode import Mode
from advisor.errors import ConfigError
from advisor.settings import SourceSettings
from tests.test_files import BOMBS

NOTHING: Mapping[str, str] = {}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder that stands in for /etc/sadvise."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_without_files_every_value_is_the_default(tmp_path: Path) -> None:
    config = load_config(None, NOTHING, folder=tmp_path / "nowhere")

    assert config == Config()
    assert {value.origin for value in effective_values(config)} == {DEFAULT}


def test_later_layers_win_key_by_key_and_every_value_knows_its_origin(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        {
            "sadvise.toml": "[planning]\ndepth = 1\npatience_s = 1\nnode_timer_s = 1\nleaf_timer_s = 1\n",
            "conf.d/10-site.toml": "[planning]\npatience_s = 2\nnode_timer_s = 2\nleaf_timer_s = 2\n",
            "conf.d/20-site.toml": "[planning]\nnode_timer_s = 3\nleaf_timer_s = 3\n[source]\nreader = 'text'\n",
            "conf.d/.20-site.toml": "an editor's copy",
            "conf.d/README": "not TOML",
        },
    )

    config = load_config(None, {"SADVISE_PLANNING__LEAF_TIMER_S": "4", "HOME": "/root"}, folder=folder)

    changed = {key: (value, origin) for key, value, origin in effective_values(config) if origin != DEFAULT}
    assert changed == {
        "planning.depth": (1, f"{folder}/sadvise.toml"),
        "planning.patience_s": (2.0, f"{folder}/conf.d/10-site.toml"),
        "planning.node_timer_s": (3.0, f"{folder}/conf.d/20-site.toml"),
        "planning.leaf_timer_s": (4.0, "SADVISE_PLANNING__LEAF_TIMER_S"),
        "source.reader": ("text", f"{folder}/conf.d/20-site.toml"),
    }


@pytest.mark.parametrize("by_option", [True, False], ids=["option", "variable"])
def test_a_named_file_is_read_in_place_of_the_folder(by_option: bool, tmp_path: Path) -> None:
    folder = written(tmp_path, {"sadvise.toml": "[guard]\nmax_changes = 1", "other.toml": "[guard]\nnice_min = -2"})
    named = folder / "other.toml"
    environ = {"SADVISE_CONFIG": "/nowhere" if by_option else str(named)}

    config = load_config(named if by_option else None, environ, folder=folder)

    assert config.guard.nice_min == -2
    assert config.origins == {"guard.nice_min": str(named)}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("planning.depth", "300", 300),
        ("planning.patience_s", "3600", 3600.0),
        ("planning.scaling_exponent", "0.5", 0.5),
        ("guard.nice_min", "-5", -5),
        ("source.reader", "text", "text"),
        ("source.reader", '"text"', "text"),
        ("source.reader", "", "auto"),
    ],
    ids=["integer", "integer for number", "number", "negative", "bare text", "quoted text", "empty"],
)
def test_a_variable_is_read_like_a_value_of_the_file(key: str, text: str, value: object, tmp_path: Path) -> None:
    config = load_config(None, {variable_of(key): text}, folder=tmp_path)

    assert {name: value for name, value, _ in effective_values(config)}[key] == value


def test_variables_of_the_command_line_are_left_to_it(tmp_path: Path) -> None:
    config = load_config(None, {"SADVISE_SNAPSHOT": "a.json", "SADVISE_SLURM_RELEASES": "26.05"}, folder=tmp_path)

    assert config == Config()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[planning]\ndepht = 1", "planning.depht is not known: did you mean depth?"),
        ("[planning]\nzzz = 1", "planning.zzz is not known: known are depth, priority_decades, "),
        ("[planning]\nnice_min = 1", "planning.nice_min is not known: it belongs in [guard]"),
        (
            "[budget]\nburst = 30",
            "budget.burst is gone: budget.time_ratio, a share of slurmctld's time, takes its place",
        ),
        ("[planning]\nageing_s = 1", "planning.ageing_s is gone: planning.priority_decades takes its place"),
        (
            "[planning]\nresize_running = false",
            "planning.resize_running was removed: take it out; running jobs are no longer restarted to grow",
        ),
        ("[planning]\npreempt = true", "planning.preempt was removed: take it out; running jobs are no longer stopped"),
        (
            "[guard]\npreempt_partitions = 'gpu'",
            "guard.preempt_partitions was removed: take it out; running jobs are no longer stopped",
        ),
        (
            "[planning]\nexplore_ratio = 0",
            "planning.explore_ratio was removed: take it out; places are no longer tried to learn from",
        ),
        (
            "[daemon]\nadapt = true",
            "daemon.adapt was removed: take it out; the performance model is no longer adapted to a site",
        ),
        ('[planning]\n"a\\nb" = 1', r"planning.'a\nb' is not known: known are depth, "),
        ("[planing]\ndepth = 1", "[planing] is not known: did you mean planning?"),
        ("depth = 1", "[depth] is not known: known are planning, guard, source"),
        ("[planning.depth]\nx = 1", "planning.depth: Input should be a valid integer, not {'x': 1}"),
        ("planning = 1", "planning is a table: write [planning] on a line of its own, then its keys"),
        ("[[planning]]\ndepth = 1", "planning is a table: write [planning] on a line of its own"),
        ("[planning]\ndepth = '5'", "planning.depth: Input should be a valid integer, not '5'"),
        ("[planning]\ndepth = true", "planning.depth: Input should be a valid integer, not True"),
        ("[planning]\ndepth = 5.0", "planning.depth: Input should be a valid integer, not 5.0"),
        ("[planning]\ndepth = 2026-01-01", "planning.depth: Input should be a valid integer, not '2026-01-01'"),
        ("[planning]\npatience_s = inf", "planning.patience_s: Input should be a finite number, not inf"),
        ("[planning]\npatience_s = nan", "planning.patience_s: Input should be a finite number, not nan"),
        ("[planning]\ndepth = 0", "planning: depth must be at least 1 and at most 1000000000"),
        ("[source]\ntimeout_s = 0", "source: timeout_s must be above 0"),
        ("[source]\nreader = 'rest'", "source.reader: Input should be 'auto', 'text' or 'pyslurm', not 'rest'"),
        ("[source]\nreader = 'json'", "source.reader: json was removed: write text or auto"),
        ("[planning\ndepth = 1", "not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 1"),
        (f"[planning]\ndepth = {'9' * 5000}", "not valid TOML: Exceeds the limit"),
        ("[planning]\ndepth = 1\ndepth = 2", "not valid TOML: Cannot overwrite a value (at "),
    ],
    ids=[
        "misspelt key",
        "strange key",
        "key of another table",
        "key of an earlier version",
        "key of an older version",
        "removed lever",
        "removed switch",
        "removed partitions",
        "removed share",
        "removed fit",
        "key of two lines",
        "misspelt table",
        "key without table",
        "table for value",
        "value for table",
        "list of tables",
        "text for integer",
        "truth for integer",
        "number for integer",
        "date for integer",
        "infinite",
        "not a number",
        "out of bounds",
        "no timeout",
        "unknown reader",
        "removed reader",
        "not toml",
        "endless number",
        "same key twice",
    ],
)
def test_a_wrong_file_is_an_error_of_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    folder = written(tmp_path, {"sadvise.toml": text})

    with pytest.raises(ConfigError) as caught:
        load_config(None, NOTHING, folder=folder)

    assert str(caught.value).startswith(f"{folder}/sadvise.toml: {complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("SADVISE_PLANNING__DEPHT", "1", "planning.depht is not known: did you mean depth?"),
        ("SADVISE_PLANING__DEPTH", "1", "table planing is not known: did you mean planning?"),
        ("SADVISE_PLANNING__DEPTH", "many", "planning.depth: Input should be a valid integer, not 'many'"),
        ("SADVISE_PLANNING__DEPTH", "0", "planning: depth must be at least 1 and at most 1000000000"),
        ("SADVISE_SOURCE__READER", "json", "source.reader: json was removed: write text or auto"),
        ("SADVISE_SOURCE__READER", "\udcff", r"holds a character that cannot be printed: '\udcff'"),
    ],
    ids=["misspelt key", "misspelt table", "wrong type", "out of bounds", "removed reader", "not utf-8"],
)
def test_a_wrong_variable_is_an_error_of_one_line(variable: str, text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {variable: text}, folder=tmp_path)

    assert str(caught.value) == f"{variable}: {complaint}"


def test_values_that_do_not_fit_together_name_every_place_they_come_from(tmp_path: Path) -> None:
    folder = written(tmp_path, {"sadvise.toml": "[planning]\nspine_inflation = 1.5\ndepth = 9"})

    with pytest.raises(ConfigError) as caught:
        load_config(None, {"SADVISE_PLANNING__LEAF_INFLATION": "1.7"}, folder=folder)

    assert str(caught.value) == (
        f"{folder}/sadvise.toml, SADVISE_PLANNING__LEAF_INFLATION: "
        "planning: leaf_inflation must be at least 1 and at most spine_inflation"
    )


def test_a_named_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^/nowhere\.toml: no such file: check --config and SADVISE_CONFIG$"):
        load_config(Path("/nowhere.toml"), NOTHING)


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sadvise.toml").mkdir()

    with pytest.raises(ConfigError, match=r"sadvise\.toml: cannot be read: Is a directory$"):
        load_config(None, NOTHING, folder=tmp_path)


def test_a_file_in_place_of_the_drop_in_folder_is_an_error(tmp_path: Path) -> None:
    folder = written(tmp_path, {"conf.d": ""})

    with pytest.raises(ConfigError, match=r"conf\.d: cannot be read: Not a directory$"):
        load_config(None, NOTHING, folder=folder)


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sadvise.toml").write_bytes(b"# \xe9\n")

    with pytest.raises(ConfigError, match=r"sadvise\.toml: not UTF-8 text: .* at byte 2$"):
        load_config(None, NOTHING, folder=tmp_path)


@pytest.mark.needs("ordinary user")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sadvise.toml").touch(mode=0o000)

    with pytest.raises(ConfigError, match=r"sadvise\.toml: cannot be read: Permission denied$"):
        load_config(None, NOTHING, folder=tmp_path)


def test_the_example_changes_nothing_until_a_line_is_uncommented(tmp_path: Path) -> None:
    example = example_toml()
    uncommented = re.sub(r"^# (\w+ = )", r"\1", example, flags=re.MULTILINE)

    config = load_config(None, NOTHING, folder=written(tmp_path, {"sadvise.toml": uncommented}))

    assert tomllib.loads(example) == {key.partition(".")[0]: {} for key, _, _ in describe()}
    assert {value.origin for value in effective_values(config)} == {f"{tmp_path}/sadvise.toml"}
    assert replace(config, origins={}) == Config()


def test_modes_are_read_and_a_mode_that_does_not_exist_is_refused_in_one_line(tmp_path: Path) -> None:
    toml = '[mode]\ndefault = "recommend"\npartitions = "gpu=apply, debug=observe"\n'
    wrong = {"SADVISE_MODE__ACCOUNTS": "vision=applied"}

    config = load_config(None, NOTHING, folder=written(tmp_path, {"sadvise.toml": toml}))

    assert (config.mode.default, config.mode.farthest) == (Mode.RECOMMEND, Mode.APPLY)
    with pytest.raises(ConfigError, match=r"^SADVISE_MODE__ACCOUNTS: mode: accounts must be name=mode pairs with"):
        load_config(None, wrong, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"^SADVISE_MODE__DEFAULT: mode\.default: Input should be 'observe', "):
        load_config(None, {"SADVISE_MODE__DEFAULT": "applied"}, folder=tmp_path)


def test_every_key_has_a_sentence_and_its_default() -> None:
    described = describe()

    assert [(key, default) for key, default, _ in described] == [
        (key, value) for key, value, _ in effective_values(Config())
    ]
    assert all(sentence and not sentence.endswith(".") for _, _, sentence in described)


def test_a_reader_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        SourceSettings(timeout_s=0.0)


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_file_that_is_nested_to_hurt_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    folder = written(tmp_path, {"sadvise.toml": text})

    with pytest.raises(ConfigError, match=r"sadvise\.toml: not valid TOML: nested more than 32 deep") as caught:
        load_config(None, NOTHING, folder=folder)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", ["[" * 100_000, "{a=" * 40_000, "{a" + ".a" * 60_000 + " = 1}"])
def test_variable_that_is_nested_to_hurt_is_a_wrong_value_in_one_short_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"SADVISE_PLANNING__DEPTH: planning\.depth: .* integer, not") as caught:
        load_config(None, {"SADVISE_PLANNING__DEPTH": value}, folder=tmp_path)

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", [Path("/dev/zero"), None], ids=["device", "file"])
def test_file_above_the_limit_is_not_read(tmp_path: Path, path: Path | None) -> None:
    large = tmp_path / "large.toml"
    large.write_text("# comment\n" * (SIZE_LIMIT_BYTES // 10 + 1))

    with pytest.raises(ConfigError, match="cannot be read: it is larger than 262144 bytes"):
        load_config(path or large, NOTHING)
