"""Fit the models that ship, from published measurements.

    python -m tools.fit_models [--data DIR] [--only KIND] [--output FOLDER]

DIR is a folder with `throughput`, `interference` and `traces`, by default SADVISE_DATA. The models in the folder are
replaced. Equal data, versions and seed give equal models; docs/forecasts.md has their errors.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from advisor.clock import SystemClock
from advisor.errors import AdvisorError
from advisor.fit.fitted import Fitted, source_of
from advisor.fit.interference_fit import fit_interference
from advisor.fit.publish import publish
from advisor.fit.run_time_fit import fit_run_time
from advisor.predict.library import Library
from advisor.predict.manifest import Manifest, read_manifest, write_manifest
from advisor.view.terminal import instant
from tools.data.drac_tables import read_tables
from tools.data.graham_polls import fit_start_time
from tools.data.simulated_traces import add_data_option, data_folder
from tools.data.step_times import fit_throughput

MODELS: Final = Path(__file__).parent.parent / "models"
VERSION: Final = "default-1"
SEED: Final = 0

DRAC: Final = Path("traces/drac_slurm")


def run_time(data: Path) -> Fitted:
    """Fit on the GPU jobs of DRAC's Graham, without its history: its accounts mean nothing elsewhere."""
    file = data / DRAC / "graham_gpu_jobs_until_2021-06-14.csv.gz"
    ended = read_tables([file]).ended
    source = source_of(file.name, file.read_bytes(), len(ended))
    return fit_run_time(ended, seed=SEED, keep_history=False, sources=(source,))


def start_time(data: Path) -> Fitted:
    """Fit on the noon polls of Graham's queue."""
    return fit_start_time([data / DRAC / "graham_gpu_queue_snapshots_until_2021-06-14.csv.gz"], seed=SEED)


def throughput(data: Path) -> Fitted:
    """Fit on Pollux's T4 cloud, ElasticFlow's A100 servers, and the models on Rubick's A800 servers of one plan."""
    folder = data / "throughput"
    files = [path for name in ("pollux_aws_t4", "elasticflow_a100") for path in sorted((folder / name).glob("*.csv"))]
    files += [folder / "rubick_a800" / f"{model}-placements.csv" for model in ("bert", "gpt2", "roberta", "vit")]
    return fit_throughput(files, form="auto", seed=SEED)


def interference(data: Path) -> Fitted:
    """Fit on Gavel's pairs of jobs on one GPU, and DeepShare's gangs on the same network and alone."""
    pairs = (data / "interference" / name for name in ("gavel_pairs.csv", "deepshare_network_contention.csv"))
    return fit_interference([*pairs, data / "throughput" / "deepshare_isolated.csv"], seed=SEED)


FITS: Final[Mapping[str, Callable[[Path], Fitted]]] = {
    "run_time": run_time,
    "start_time": start_time,
    "throughput": throughput,
    "interference": interference,
}


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument(
        "--only", metavar="KIND", choices=FITS, action="append", help="only this model; can be repeated"
    )
    parser.add_argument("--output", metavar="FOLDER", type=Path, default=MODELS, help="where the models go")
    options = parser.parse_args(argv)
    try:
        data = data_folder(options.data, holds=str(DRAC))
        for kind in options.only or FITS:
            fitted = FITS[kind](data)
            _replace(fitted, options.output)
            print(f"{kind}: {', '.join(f'{name} {value:.4g}' for name, value in fitted.metrics.items())}")
    except AdvisorError as err:
        sys.stderr.write(f"fit_models: error: {err}\n")
        return err.exit_code
    return 0


def _replace(fitted: Fitted, folder: Path) -> None:
    """Publish a model in place of the one in the folder."""
    today = instant(SystemClock().now())[:10]
    put_in_place(fitted.kind, folder, lambda: publish(fitted, folder, VERSION, today=today))


def put_in_place(kind: str, folder: Path, write: Callable[[], object]) -> None:
    """Remove the model of a kind, write another, and put it in use."""
    manifest = read_manifest(folder)
    others = tuple(entry for entry in manifest.model if entry.kind != kind)
    in_use = {name: version for name, version in manifest.in_use.items() if name != kind}
    write_manifest(folder, Manifest(in_use=in_use, model=others))
    shutil.rmtree(folder / kind, ignore_errors=True)
    write()
    Library(folder, folder / "none").use(kind, VERSION)


if __name__ == "__main__":
    sys.exit(main())
