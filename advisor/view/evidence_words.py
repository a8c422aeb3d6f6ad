"""Words the numbers behind a finding, whose names and units are those of the JSON."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from advisor.domain.plan import Evidence
from advisor.domain.units import duration
from advisor.view.terminal import instant

_FLAGS: Final[Mapping[str, str]] = {
    "any_will_do": "any of them will do",
    "is_maintenance": "maintenance",
    "powered_down": "powered-down nodes are hidden",
}
_SPELLED: Final[Mapping[str, str]] = {
    "gpu": "GPU", "gpus": "GPUs", "cpus": "CPUs", "qos": "QOS", "tres": "TRES", "slurm": "Slurm",
}  # fmt: skip


def evidence_words(
    evidence: Mapping[str, Evidence], instant: Callable[[float], str] = instant
) -> Iterator[tuple[str, str]]:
    """Yield each name in words with its value: `queueing_delay_s` 5400 is `queueing delay` and `1.5 h`."""
    for name, value in evidence.items():
        *words, unit = name.split("_")
        if name in _FLAGS:
            yield _FLAGS[name], "yes" if value else "no"
        elif isinstance(value, str):
            yield _spaced([*words, unit]), value
        elif unit == "s":
            yield _spaced(words), duration(value)
        elif unit == "time":
            yield _spaced([*words, unit]), instant(value)
        elif "mib" in words or unit == "mib":
            yield _spaced([word for word in (*words, unit) if word != "mib"]), f"{value} MiB"
        else:
            yield _spaced([*words, unit]), str(value)


def _spaced(words: list[str]) -> str:
    return " ".join(_SPELLED.get(word, word) for word in words)
