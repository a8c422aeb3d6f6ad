"""Fit the job profiles of the simulator to published measurements, and print their errors.

python -m tools.fit_profiles [--data DIR] [--check] [-o advisor/sim/profiles.csv] [--page docs/network.md]

DIR is a folder with `throughput/` and `interference/`, by default SADVISE_DATA. The table of errors and the page
on the network model go to standard output; the page is also written. `--check` writes nothing: it fits again, and
fails if the shipped table or the page differs or an overall error is above its limit.
"""

import argparse
import csv
import io
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from advisor.errors import TraceError
from advisor.sim.profiles import MODEL, NEUTRAL, PROFILE_FILE, SOURCE, SPEED_PREFIX, Profiles, load_profiles
from tools.data.profile_data import Measurements, Speed, read_measurements
from tools.data.simulated_traces import add_data_option, data_folder
from tools.network_errors import network_page
from tools.profile_errors import ErrorLine, error_lines, markdown
from tools.profile_fit import (
    CONTENTION_FROM,
    NETWORK_LIKE,
    PAIRS_FROM,
    SPREADS_FROM,
    STEPS_FROM,
    Pair,
    fit_contention,
    fit_pairs,
    fit_pressure_slope,
    fit_spreads,
    fit_steps,
    sensitivity_of_network,
    spread_rows,
    step_rows,
    traffic_of_sensitivity,
    without_batch,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "network.md"
GPU_TYPES = ("k80", "p100", "v100", "t4", "a40", "a100", "a800")
REFERENCE_TYPE = "v100"
# The same chip; only the links between the GPUs differ.
SAME_CHIP = {"a800": "a100"}

STEP = ("serial_ratio", "sync_ratio")
NETWORK = ("traffic_gbps", "spread_exponent", "overlap_ratio")
SHARED = ("gpu_need", "gpu_pressure")
NIC = ("node_sensitivity", "node_pressure")

# The limit on the overall mean error of each data set, beside the error when the table was made.
LIMITS: Mapping[str, float] = {
    "ElasticFlow": 0.035,  # 0.028
    "Pollux one node": 0.085,  # 0.074
    "Shockwave V100": 0.095,  # 0.082
    "Rubick one node": 0.015,  # 0.008
    "Rubick nodes": 0.055,  # 0.044
    "Pollux nodes": 0.085,  # 0.073
    "Rubick": 0.11,  # 0.097
    "Gavel V100": 0.095,  # 0.080
    "Chronus": 0.055,  # 0.043
    "DeepShare nodes": 0.09,  # 0.078
    "Gavel types": 0.25,  # 0.218
    "Zeus types": 0.1,  # 0.085
    "Gavel pairs": 0.075,  # 0.071
    "DeepShare beside": 0.075,  # 0.069
}

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedProfile:
    """The fitted numbers of a model by field, the data set behind each part, and its speeds by GPU type."""

    numbers: Numbers
    rests_on: Mapping[str, str]
    speeds: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedNeighbours:
    """The fit to jobs beside others: pairs of need or sensitivity and pressure, by name."""

    shared: Mapping[str, Pair]
    contention: Mapping[str, Pair]
    pressure_slope: float


def fit(measured: Measurements) -> dict[str, FittedProfile]:
    """Return the fitted profiles by name; the neutral one is first, and its numbers fill the gaps of the others."""
    speeds = _speeds(measured.speeds)
    pairs = [row for row in measured.pairs if row.source == PAIRS_FROM]
    contention = fit_contention(measured.contention)
    neighbours = FittedNeighbours(
        shared=fit_pairs(pairs) | fit_pairs(without_batch(pairs)),
        contention=contention,
        pressure_slope=fit_pressure_slope(contention, measured.contention),
    )
    bare = {name for name in neighbours.shared if "/" not in name}
    models = sorted(({*STEPS_FROM, *SPREADS_FROM, *speeds} | bare) - {NEUTRAL})
    fitted = {model: _fit_model(model, measured, neighbours, speeds[model]) for model in models}
    medians = _medians([profile.numbers for profile in fitted.values()])
    neutral = FittedProfile(numbers=medians, rests_on={}, speeds=speeds[NEUTRAL])
    for model, like in NETWORK_LIKE.items():
        borrowed = {field: fitted[like].numbers[field] for field in (*NETWORK, *NIC)}
        rests_on = {**fitted[model].rests_on, "network": f"as {like}", "shared NIC": f"as {like}"}
        fitted[model] = replace(fitted[model], numbers=fitted[model].numbers | borrowed, rests_on=rests_on)
    table = {NEUTRAL: neutral}
    for model, own in fitted.items():
        table[model] = replace(own, numbers=neutral.numbers | own.numbers)
    for name in sorted(neighbours.shared.keys() - bare, key=_by_batch):
        alike = table[name.partition("/")[0]]
        table[name] = replace(alike, numbers=alike.numbers | dict(zip(SHARED, neighbours.shared[name], strict=True)))
    return table


def _fit_model(model: str, measured: Measurements, neighbours: FittedNeighbours, speeds: Numbers) -> FittedProfile:
    """Return the profile of a model with only the numbers that its own measurements give."""
    numbers: Numbers = {}
    rests_on: dict[str, str] = {}
    if model in STEPS_FROM:
        numbers |= zip(STEP, map(float, fit_steps(step_rows(model, measured.steps))), strict=True)
        rests_on["step"] = STEPS_FROM[model]
    if model in SPREADS_FROM:
        beside = neighbours.contention.get(model)
        traffic_gbps = traffic_of_sensitivity(beside[0]) if beside else None
        network = fit_spreads(spread_rows(model, measured.spreads), speeds, traffic_gbps)
        numbers |= zip(NETWORK, map(float, network), strict=True)
        rests_on["network"] = SPREADS_FROM[model]
        sensitivity = sensitivity_of_network(network)
        numbers |= zip(NIC, beside or (sensitivity, neighbours.pressure_slope * sensitivity), strict=True)
        rests_on["shared NIC"] = CONTENTION_FROM if beside else "its network"
    if model in neighbours.shared:
        numbers |= zip(SHARED, neighbours.shared[model], strict=True)
        rests_on["shared GPU"] = PAIRS_FROM
    return FittedProfile(numbers=numbers, rests_on=rests_on, speeds=speeds)


def _speeds(rows: Sequence[Speed]) -> defaultdict[str, Numbers]:
    """Return speeds by model and GPU type; the median over models stands for speeds that were not measured."""
    measured: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        measured[row.model][row.gpu_type].append(row.speed)
    by_model = {model: {name: median(values) for name, values in own.items()} for model, own in measured.items()}
    typical = _medians(list(by_model.values()))

    def completed(own: Numbers) -> Numbers:
        """Return the speeds on every type."""
        speeds = {**typical, **own, REFERENCE_TYPE: 1.0}
        speeds |= {name: speeds[like] for name, like in SAME_CHIP.items()}
        return {name: speeds[name] for name in GPU_TYPES}

    complete = defaultdict(lambda: completed({}), {model: completed(own) for model, own in by_model.items()})
    complete[NEUTRAL] = completed({})
    return complete


def _medians(models: Sequence[Numbers]) -> Numbers:
    """Return the median of each number over the models that have it."""
    names = dict.fromkeys(name for numbers in models for name in numbers)
    return {name: median(numbers[name] for numbers in models if name in numbers) for name in names}


def _by_batch(name: str) -> tuple[str, int]:
    model, _, batch = name.partition("/")
    return model, int(batch)


def table_text(profiles: Mapping[str, FittedProfile]) -> str:
    """Return profiles as the text of a CSV file, numbers to four significant digits."""
    text = io.StringIO()
    fields = [*STEP, *NETWORK, *SHARED, *NIC]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([MODEL, *fields, *(SPEED_PREFIX + name for name in GPU_TYPES), SOURCE])
    for model, profile in profiles.items():
        numbers = [profile.numbers[field] for field in fields] + [profile.speeds[name] for name in GPU_TYPES]
        rests_on = "; ".join(f"{part}: {source}" for part, source in profile.rests_on.items())
        writer.writerow([model, *(f"{number:.4g}" for number in numbers), rests_on or "medians of the others"])
    return text.getvalue()


def faults_of(text: str, lines: Sequence[ErrorLine], shipped: Path) -> list[str]:
    """Return one line for each overall error above its limit, and one if the shipped table differs."""
    faults = [
        f"{line.source}: mean error {line.mean:.4f} is above its limit {LIMITS[line.source]:g}: mend the fit"
        for line in lines
        if line.is_fitted and not line.model and line.mean > LIMITS.get(line.source, float("inf"))
    ]
    if not shipped.is_file() or shipped.read_text(encoding="utf-8") != text:
        faults.append(f"{shipped} is not what the measurements give: run python -m tools.fit_profiles")
    return faults


def faults_of_page(text: str, page: Path) -> list[str]:
    """Return one line if the page on disk differs."""
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return []
    return [f"{page} is not what the measurements give: run python -m tools.fit_profiles"]


def profiles_of(text: str) -> Profiles:
    """Return the profiles that the simulator reads from a table."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / PROFILE_FILE.name
        file.write_text(text, encoding="utf-8")
        return load_profiles(file)


def run(folder: Path, output: Path, page: Path, *, is_check: bool) -> int:
    """Fit, print the errors and the page, and write table and page or compare them with the files on disk."""
    measured = read_measurements(folder)
    text = table_text(fit(measured))
    profiles = profiles_of(text)
    lines = error_lines(profiles, measured)
    page_text = network_page(profiles, measured, lines)
    print(markdown(lines), page_text, sep="\n", end="")
    if not is_check:
        output.write_text(text, encoding="utf-8")
        page.write_text(page_text, encoding="utf-8")
        return 0
    faults = faults_of(text, lines, output) + faults_of_page(page_text, page)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; missing data is an error of one line."""
    parser = argparse.ArgumentParser(prog="python -m tools.fit_profiles", description=(__doc__ or "").splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--check", action="store_true", help="fit again, write nothing, exit 1 if a file differs")
    parser.add_argument("-o", "--output", type=Path, default=PROFILE_FILE, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page on the network model")
    options = parser.parse_args(arguments)
    try:
        folder = data_folder(options.data, holds="throughput")
        return run(folder, options.output, options.page, is_check=options.check)
    except FileNotFoundError as err:
        fault = f"{err.filename}: not there; --data must name a folder with throughput/ and interference/"
    except TraceError as err:
        fault = str(err)
    print(fault, file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
