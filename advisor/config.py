"""Reads and validates sadvise.toml and the environment variables, and records the origin of every value.

Defaults, bounds and the sentences that document them are in `settings`. Later sources override earlier ones:
the defaults, /etc/sadvise/sadvise.toml, the files of /etc/sadvise/conf.d by name, variables such as
SADVISE_PLANNING__DEPTH. The options of a command come last; the command line applies them.

A cluster that is named with -M or in SLURM_CLUSTERS can have a file of its own, clusters/NAME.toml, which is read in
place of the others.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails

from advisor.domain.dataclass import dataclass
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.idle_gpus import UtilisationSettings
from advisor.domain.mode import Modes
from advisor.domain.notice import NoticeSettings
from advisor.domain.tune_verdict import Adoption
from advisor.errors import ConfigError, OptionsError
from advisor.files import parse_toml, read_bounded
from advisor.settings import (
    BreakerSettings,
    BudgetSettings,
    DaemonSettings,
    EndpointSettings,
    ForecastSettings,
    JournalSettings,
    Limits,
    PlanningSettings,
    SourceSettings,
    WebSettings,
)
from advisor.text import named

FOLDER = Path("/etc/sadvise")
FILE_VARIABLE = "SADVISE_CONFIG"
CLUSTER_VARIABLE = "SLURM_CLUSTERS"
CLUSTERS = "clusters"
EVERY_CLUSTER = "all"
DEFAULT = "default"
# The file that states every default has 8 KiB.
SIZE_LIMIT_BYTES = 256 * 2**10

# How much of a wrong value an error shows.
_LONGEST = 200
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"SADVISE_([A-Z0-9_]+?)__(.+)")

Value = str | int | float | bool
# Keys of earlier versions, each with what replaced it.
_REPLACED: Mapping[str, str] = {
    **dict.fromkeys(
        ("budget.rpcs_per_minute", "budget.burst", "budget.writes_per_minute", "budget.kept_for_reads"),
        "budget.time_ratio, a share of slurmctld's time,",
    ),
    "planning.ageing_s": "planning.priority_decades",
    "guard.nice_max": "guard.nice_min, as jobs are only lifted,",
}
# Keys of earlier versions that nothing replaced, each with what to do.
_REMOVED: Mapping[str, str] = {
    "planning.resize_running": "running jobs are no longer restarted to grow",
    **dict.fromkeys(
        ("planning.preempt", "planning.restart_s", "guard.preempt_partitions"), "running jobs are no longer stopped"
    ),
    **dict.fromkeys(
        ("planning.explore_ratio", "planning.explore_slowdown"), "places are no longer tried to learn from"
    ),
    "daemon.adapt": "the performance model is no longer adapted to a site",
}
# Values of earlier versions, by key, each with what to do.
_REMOVED_VALUES: Mapping[str, Mapping[str, str]] = {"source.reader": {"json": "write text or auto"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration in force; `origins` maps keys ("planning.depth") to a file or variable, absent for defaults.

    `adoption` holds the settings that the daemon took up by itself, `not_adopted` is why those of its file do not hold.
    """

    planning: PlanningSettings = field(default_factory=PlanningSettings)
    guard: Limits = field(default_factory=Limits)
    source: SourceSettings = field(default_factory=SourceSettings)
    forecasts: ForecastSettings = field(default_factory=ForecastSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    mode: Modes = field(default_factory=Modes)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    metrics: EndpointSettings = field(default_factory=EndpointSettings)
    experiment: ExperimentSettings = field(default_factory=ExperimentSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    breakers: BreakerSettings = field(default_factory=BreakerSettings)
    notify: NoticeSettings = field(default_factory=NoticeSettings)
    web: WebSettings = field(default_factory=WebSettings)
    utilisation: UtilisationSettings = field(default_factory=UtilisationSettings)
    origins: Mapping[str, str] = field(default_factory=dict)
    adoption: Adoption | None = None
    not_adopted: str = ""


class KeyDescription(NamedTuple):
    """A key with its default and the sentence that documents it."""

    key: str
    default: Value
    sentence: str


class EffectiveValue(NamedTuple):
    """The value in force of a key, and where it came from."""

    key: str
    value: Value
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """The values that one file or variable sets, by table."""

    origin: str
    tables: Mapping[str, Mapping[str, object]]


# The tables of sadvise.toml; a new one is a field of `Config`.
_NO_TABLES: Final = ("origins", "adoption", "not_adopted")
_TABLES: Mapping[str, type[Any]] = {
    name: kind for name, kind in get_type_hints(Config).items() if name not in _NO_TABLES
}
_KEYS: Mapping[str, tuple[str, ...]] = {
    table: tuple(key.name for key in fields(settings)) for table, settings in _TABLES.items()
}
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def load_config(
    path: Path | None, environ: Mapping[str, str], *, folder: Path = FOLDER, cluster: str | None = None
) -> Config:
    """Read the configuration; `path`, or else SADVISE_CONFIG, names a file to read in place of `folder`.

    `cluster`, or else SLURM_CLUSTERS, names the cluster whose own file, if there is one, is read in place of all that.
    Raises `ConfigError` for anything that is not known, not of its type, out of bounds or not readable.
    """
    named_file = _named_file(path, environ)
    own = own_file(cluster or environ.get(CLUSTER_VARIABLE), clusters_folder(named_file, folder))
    layers = [*_file_layers(own or named_file, folder), *_environment_layers(environ)]
    origins = {
        f"{table}.{key}": layer.origin for layer in layers for table, keys in layer.tables.items() for key in keys
    }
    return with_adoption(_validated(layers, origins))


def adoption_file(config: Config) -> Path:
    """Return the file in which the daemon keeps the settings that it took up by itself, beside its journal."""
    return Path(config.journal.file).with_name("adopted.json")


def with_adoption(config: Config) -> Config:
    """Return a configuration with the settings that the daemon has taken up by itself until now.

    They hold only while `daemon.tune_presets` allows them and what they replace is configured as it was.
    """
    last, path = config.adoption, adoption_file(config)
    if last is not None:
        config = _with_settings(config, last.configured_fairness, last.configured_decades, adoption=None)
    elif config.not_adopted:
        config = replace(config, not_adopted="")
    if not config.daemon.tune_presets:
        return config
    try:
        adoption = TypeAdapter(Adoption).validate_json(read_bounded(path, SIZE_LIMIT_BYTES), strict=True)
        against = adoption.against(config.daemon.presets, config.guard.fairness, config.planning.priority_decades)
        if against:
            return replace(config, not_adopted=f"{path}: {against}; the configured settings are in force")
        origins = {**config.origins, **dict.fromkeys(("guard.fairness", "planning.priority_decades"), str(path))}
        adopted = replace(config, origins=origins)
        return _with_settings(adopted, adoption.fairness, adoption.priority_decades, adoption=adoption)
    except FileNotFoundError:
        return config
    except (OSError, ValueError):
        return replace(config, not_adopted=f"{path}: cannot be read; the configured settings are in force")


def _with_settings(config: Config, fairness: str, decades: float, *, adoption: Adoption | None) -> Config:
    """Return a configuration with other settings; raises `ValueError` for decades out of bounds."""
    return replace(
        config,
        guard=replace(config.guard, fairness=fairness),  # type: ignore[arg-type]  # that of a preset, or configured
        planning=replace(config.planning, priority_decades=decades),
        adoption=adoption,
    )


def chosen_clusters(
    text: str | None, path: Path | None, environ: Mapping[str, str], *, folder: Path = FOLDER
) -> tuple[str | None, ...]:
    """Return the clusters that -M names: a list, or for `all` every one with a file; None is that of this host.

    Raises `OptionsError` for what is no name of a cluster, and `ConfigError` where `all` finds no file.
    """
    if text is None:
        return (None,)
    if text == EVERY_CLUSTER:
        own_folder = clusters_folder(_named_file(path, environ), folder)
        names = [file.stem for file in _drop_ins(own_folder)]
        if not names:
            raise ConfigError(f"-M all: {own_folder} holds no NAME.toml of a cluster: see docs/clusters.md")
    else:
        names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if not _CLUSTER_NAME.fullmatch(name) or (name == EVERY_CLUSTER and text != EVERY_CLUSTER):
            raise OptionsError(
                f"-M {named(text, longest=80)}: {named(name, longest=80)!r} is not the name of a cluster"
            )
    return tuple(names)


def own_file(cluster: str | None, clusters: Path) -> Path | None:
    """Return the configuration file of one cluster in the folder of those; None where it has none."""
    if not cluster or cluster == EVERY_CLUSTER or not _CLUSTER_NAME.fullmatch(cluster):
        return None
    file = clusters / f"{cluster}.toml"
    return file if file.exists() else None


def clusters_folder(path: Path | None, folder: Path = FOLDER) -> Path:
    """Return the folder with the files of clusters: beside the configuration file `path`, or in `folder`."""
    if path is None:
        return folder / CLUSTERS
    return path.parent if path.parent.name == CLUSTERS else path.parent / CLUSTERS


def effective_values(config: Config) -> list[EffectiveValue]:
    """List every value in force with its origin."""
    return [
        EffectiveValue(
            key=f"{table}.{key}",
            value=getattr(getattr(config, table), key),
            origin=config.origins.get(f"{table}.{key}", DEFAULT),
        )
        for table, keys in _KEYS.items()
        for key in keys
    ]


def describe() -> list[KeyDescription]:
    """List every key with its default and the sentence that documents it."""
    return [
        KeyDescription(f"{table}.{key}", getattr(settings(), key), hint.__metadata__[0])
        for table, settings in _TABLES.items()
        for key, hint in get_type_hints(settings, include_extras=True).items()
    ]


def variable_of(key: str) -> str:
    """Return the environment variable that overrides a key."""
    return f"SADVISE_{key.replace('.', '__').upper()}"


def example_toml() -> str:
    """Return a sadvise.toml that states every default, commented out."""
    lines = ["# sadvise.toml with every key at its default; take the # away from what you change."]
    table = ""
    for key, default, sentence in describe():
        of_key, _, name = key.partition(".")
        if of_key != table:
            table = of_key
            # Only the first line of the docstring: further lines would not be commented out.
            lines += ["", f"# {(_TABLES[table].__doc__ or '').partition(chr(10))[0]}", f"[{table}]"]
        # TOML and JSON spell numbers, texts and truth values alike.
        lines += ["", f"# {sentence}", f"# {name} = {json.dumps(default)}"]
    return "\n".join(lines) + "\n"


def _named_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file that the option or the variable names."""
    if path is None and environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE])
    return path


def _file_layers(path: Path | None, folder: Path) -> Iterator[_Layer]:
    if path is not None:
        text = _text(path)
        if text is None:
            raise ConfigError(f"{path}: no such file: check --config and {FILE_VARIABLE}")
        yield _file_layer(path, text)
        return
    for file in (folder / "sadvise.toml", *_drop_ins(folder / "conf.d")):
        text = _text(file)
        if text is not None:
            yield _file_layer(file, text)


def _drop_ins(folder: Path) -> list[Path]:
    """List the .toml files of a folder by name, without hidden ones, which editors leave behind."""
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".toml" and not file.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as err:
        raise ConfigError(f"{folder}: cannot be read: {err.strerror}") from err


def _text(path: Path) -> str | None:
    """Read a file; None where there is none."""
    try:
        return read_bounded(path, SIZE_LIMIT_BYTES).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path}: not UTF-8 text: {err.reason} at byte {err.start}") from err
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err


def _file_layer(path: Path, text: str) -> _Layer:
    try:
        tables = parse_toml(text)
    except ValueError as err:  # also for a number of thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {err}") from err
    for table, keys in tables.items():
        if table not in _TABLES:
            raise ConfigError(f"{path}: [{named(table)}] is not known: {_nearest(table, _TABLES)}")
        if not isinstance(keys, dict):
            raise ConfigError(f"{path}: {table} is a table: write [{table}] on a line of its own, then its keys")
        for key in keys:
            _check_key(str(path), table, key)
    return _Layer(origin=str(path), tables=tables)


def _environment_layers(environ: Mapping[str, str]) -> Iterator[_Layer]:
    for variable, text in sorted(environ.items()):
        match = _VARIABLE.fullmatch(variable)
        # An empty variable is how service managers and shells unset one.
        if match is None or not text:
            continue
        if not text.isprintable():
            raise ConfigError(f"{variable}: holds a character that cannot be printed: {text!a}")
        table, key = match[1].lower(), match[2].lower()
        if table not in _TABLES:
            raise ConfigError(f"{variable}: table {table} is not known: {_nearest(table, _TABLES)}")
        _check_key(variable, table, key)
        yield _Layer(origin=variable, tables={table: {key: _environment_value(text)}})


def _environment_value(text: str) -> object:
    """Parse the value of a variable as TOML, so that numbers and booleans keep their types; else return the text."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _check_key(origin: str, table: str, key: str) -> None:
    if key in _KEYS[table]:
        return
    if f"{table}.{key}" in _REPLACED:
        raise ConfigError(f"{origin}: {table}.{key} is gone: {_REPLACED[f'{table}.{key}']} takes its place")
    if f"{table}.{key}" in _REMOVED:
        raise ConfigError(f"{origin}: {table}.{key} was removed: take it out; {_REMOVED[f'{table}.{key}']}")
    elsewhere = next((other for other, keys in _KEYS.items() if key in keys), None)
    hint = _nearest(key, _KEYS[table]) if elsewhere is None else f"it belongs in [{elsewhere}]"
    raise ConfigError(f"{origin}: {table}.{named(key)} is not known: {hint}")


def _nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    nearest = get_close_matches(word, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"


def _validated(layers: Iterable[_Layer], origins: Mapping[str, str]) -> Config:
    """Merge the layers, later ones over earlier ones, and validate the result."""
    merged: dict[str, dict[str, object]] = {}
    for layer in layers:
        for table, keys in layer.tables.items():
            merged.setdefault(table, {}).update(keys)
    try:
        # From JSON, because in strict mode pydantic builds dataclasses from nothing else. Dates become text, which no
        # key accepts.
        tables = _model_of(*sorted(merged)).model_validate_json(json.dumps(merged, default=str))
    except ValidationError as err:
        raise ConfigError(_fault(err.errors(include_url=False)[0], origins)) from err
    return Config(**{table: getattr(tables, table) for table in merged}, origins=origins)


@cache
def _model_of(*tables: str) -> type[BaseModel]:
    """Return the model of some tables; that of all takes long to build, and few files set keys in more than two."""
    kinds: Mapping[str, Any] = {table: (_TABLES[table], ...) for table in tables}
    return create_model("_Tables", __config__=_STRICT, **kinds)


def _fault(error: ErrorDetails, origins: Mapping[str, str]) -> str:
    """Return one line that names the wrong value, where it was set, and why it is wrong."""
    table, *keys = (str(step) for step in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if keys:
        key, value = f"{table}.{keys[0]}", error["input"]
        hint = _REMOVED_VALUES.get(key, {}).get(str(value))
        fault = f"{message}, not {value!r:.{_LONGEST}}" if hint is None else f"{value} was removed: {hint}"
        return f"{origins[key]}: {key}: {fault}"
    # A check of several keys together failed; the message names them.
    blamed = {origins[key] for key in origins if key.startswith(f"{table}.") and key.split(".")[1] in message.split()}
    return f"{', '.join(sorted(blamed)) or table}: {table}: {message}"
