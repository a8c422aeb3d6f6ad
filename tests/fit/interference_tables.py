"""Small tables of measured pairs."""

from collections.abc import Sequence
from pathlib import Path

GAVEL = (
    "gpu_type", "model1", "batch_size1", "model2", "batch_size2", "isolated1", "isolated2", "colocated1", "colocated2",
)  # fmt: skip
DEEPSHARE = (
    "model", "gpus", "nodes", "corunner_model", "corunner_gpus", "corunner_nodes", "throughput_ratio", "extrapolated",
)  # fmt: skip
DEEPSHARE_SINGLES = ("model", "gpus", "nodes", "samples_per_s", "extrapolated")
BLOX = (
    "index", "model1", "dataset1", "gpu_num1", "batch_size1", "speed1", "co_pipeline_rank", "pipeline_strategy",
    "model2", "dataset2", "gpu_num2", "batch_size2", "speed2",
)  # fmt: skip
LUCID = (
    "model1", "dataset1", "gpu_num1", "batchsize1", "amp1", "speed1", "model2", "dataset2", "gpu_num2", "batchsize2",
    "amp2", "speed2", "gpu_util", "gmem_util", "gmem",
)  # fmt: skip
LUCID_SINGLES = ("model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem", "label")

# How much of a GPU, and of a network, each model needs and takes.
NEED_BY_MODEL = {"Alpha": 0.2, "Beta": 0.5, "Gamma": 0.9, "Delta-1": 0.7, "Epsilon": 0.35}


def write(folder: Path, columns: Sequence[str], rows: Sequence[str], *, name: str = "pairs.csv") -> Path:
    """Write a table."""
    path = folder / name
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")
    return path


def speed_beside(mine: str, other: str) -> float:
    """Return the relative speed of a model beside another."""
    return 1.0 / (1.0 + NEED_BY_MODEL[mine] * (0.3 + NEED_BY_MODEL[other]))


def gavel_rows(models: Sequence[str] = tuple(NEED_BY_MODEL), gpu_types: Sequence[str] = ("v100", "k80")) -> list[str]:
    """Return rows of every pair of models at two batch sizes."""
    jobs = [(model, batch) for model in models for batch in (16, 32)]
    rows = []
    for gpu_type in gpu_types:
        for at, (first, batch) in enumerate(jobs):
            for second, other_batch in jobs[at:]:
                alone, other_alone = 100.0 / batch, 100.0 / other_batch
                beside, other_beside = alone * speed_beside(first, second), other_alone * speed_beside(second, first)
                rows.append(
                    f"{gpu_type},{first},{batch},{second},{other_batch},{alone},{other_alone},{beside},{other_beside}"
                )
    return rows


def deepshare_rows(models: Sequence[str] = tuple(NEED_BY_MODEL)) -> list[str]:
    """Return rows of every two gangs."""
    gangs = [(model, gpus) for model in models for gpus in (2, 4)]
    return [
        f"{mine},{gpus},2,{other},{other_gpus},2,{speed_beside(mine, other):.4f},0"
        for mine, gpus in gangs
        for other, other_gpus in gangs
    ]
