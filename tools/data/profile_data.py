"""Reads the measurements that job profiles are fitted to from a folder of published data sets.

If a data set does not state the bandwidth of a link, or a socket gets less than the link could carry, 10 Gb/s is
assumed: the limit of one flow of a virtual machine on AWS. With it the traffic fitted for BERT agrees with that on a
cluster whose links are known.
"""

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.sim.profiles import model_key

SOCKET_GBPS = 10.0
RUBICK_NIC_GBPS, RUBICK_GPUS_PER_NIC = 200.0, 2  # 100 GB/s for a node of eight
RUBICK_KINDS = {"ga": "Rubick", "gc": "Rubick", "zero-dp": "Rubick ZeRO"}
POLLUX = {"bert": "bert", "cifar10": "cifar10", "imagenet": "resnet50", "ncf": "ncf", "yolov3": "yolov3"}
POLLUX_NODE_GPUS = 4
GAVEL_GANGS = ("LM", "ResNet-18", "ResNet-50", "Transformer")
# Gavel measured the V100 speeds of these two alone on another set-up than beside other jobs: ResNet-18 is slower alone
# than per GPU on two, Recommendation ten times slower than in Gavel's own second file.
V100_PAIRS_UNUSABLE = ("ResNet-18", "Recommendation")
ZEUS = {"resnet50": "resnet50", "bert_base_uncased": "bert", "deepspeech2": "deepspeech2", "ncf": "ncf",
        "shufflenetv2": "shufflenetv2"}  # fmt: skip
# Model, file, batch size on the T4, row of Zeus, samples of one epoch there.
T4_PAIRS = (
    ("bert", "bert", 12, ("squad", "bert_base_uncased", "12", "adamw"), 88_524),
    ("resnet50", "imagenet", 200, ("imagenet", "resnet50", "192", "adadelta"), 1_281_167),
)
NVIDIA = {
    "PyTorch/Classification/ConvNets/resnet50v1.5": ("resnet50", ""),
    "PyTorch/LanguageModeling/BERT": ("bert", "Fine-tuning"),
    "PyTorch/LanguageModeling/Transformer-XL": ("transformerxl", "Base model"),
    "PyTorch/Recommendation/DLRM": ("dlrm", ""),
    "PyTorch/Recommendation/NCF": ("ncf", ""),
    "PyTorch/Translation/Transformer": ("transformer", ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step time over that at `base_gpus`; shares are the batch per GPU over the reference batch of one GPU."""

    source: str
    model: str
    gpus: int
    share: float
    base_gpus: int = 1
    base_share: float = 1.0
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpread:
    """A run time on `nodes` over that on `best_nodes`; `pace` is a GPU's speed over that at the reference batch."""

    source: str
    model: str
    gpu_type: str = "v100"
    gpus: int
    nodes: int
    gbps: float
    best_nodes: int = 1
    best_gbps: float = 0.0
    pace: float = 1.0
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The speed of a job beside another, over its speed alone; names may carry the batch size."""

    source: str
    mine: str
    other: str
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of a model on one GPU of a type, relative to a V100."""

    source: str
    model: str
    gpu_type: str
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The measurements of all data sets."""

    steps: tuple[MeasuredStep, ...]
    spreads: tuple[MeasuredSpread, ...]
    pairs: tuple[Beside, ...]
    contention: tuple[Beside, ...]
    speeds: tuple[Speed, ...]


def read_measurements(folder: Path) -> Measurements:
    """Read every data set; raises FileNotFoundError if the folder lacks one."""
    throughput, interference = folder / "throughput", folder / "interference"
    pollux_steps, pollux_spreads = _pollux(throughput / "pollux_aws_t4")
    rubick_steps, rubick_spreads = _rubick(throughput / "rubick_a800")
    large_steps, large_spreads = _rubick_large(throughput / "rubick_a800")
    gavel = list(_rows(throughput / "gavel_isolated.csv"))
    zeus = {name: _zeus(throughput / f"zeus/summary_power_{name}.csv") for name in ("p100", "v100", "a40")}
    return Measurements(
        steps=(*_elasticflow(throughput / "elasticflow_a100"), *pollux_steps, *rubick_steps, *large_steps,
               *_shockwave(throughput / "shockwave_v100_isolated.csv")),
        spreads=(*pollux_spreads, *rubick_spreads, *large_spreads, *_gavel_spreads(gavel),
                 *_chronus(throughput / "chronus_consolidation_penalty.json"),
                 *_deepshare_spreads(throughput / "deepshare_isolated.csv")),
        pairs=tuple(_gavel_pairs(interference / "gavel_pairs.csv")),
        contention=tuple(_deepshare_contention(interference / "deepshare_network_contention.csv")),
        speeds=(*_gavel_speeds(gavel), *_zeus_speeds(zeus), *_t4_speeds(throughput / "pollux_aws_t4", zeus["v100"]),
                *_nvidia_speeds(throughput / "nvidia_training_tables.csv.gz")),
    )  # fmt: skip


def _rows(file: Path) -> Iterator[dict[str, str]]:
    opener: Callable[..., object] = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", newline="", encoding="utf-8") as lines:  # type: ignore[attr-defined]
        yield from csv.DictReader(lines)


def _elasticflow(folder: Path) -> Iterator[MeasuredStep]:
    """Yield strong scaling on nodes with 8 A100, 1 to 64 GPUs; the reference is the largest batch."""
    for model in ("bert", "gpt2", "inception3", "resnet50", "vgg16"):
        table = list(_rows(folder / f"{model}.csv"))
        largest = max(table, key=lambda line: int(line["global_batch_size"]))
        for line in table:
            for gpus, steps_per_s in line.items():
                if not gpus.isdigit() or (line is largest and gpus == "1"):
                    continue
                share = int(line["global_batch_size"]) / int(largest["global_batch_size"]) / int(gpus)
                ratio = float(largest["1"]) / float(steps_per_s)
                yield MeasuredStep(source="ElasticFlow", model=model, gpus=int(gpus), share=share, ratio=ratio)


def _pollux(folder: Path) -> tuple[list[MeasuredStep], list[MeasuredSpread]]:
    """Return weak scaling on nodes with 4 T4; more than 4 GPUs are compared with 4 on one node, same batch per GPU."""
    steps, spreads = [], []
    for name, model in (*POLLUX.items(), ("deepspeech2", "deepspeech2")):
        file = folder / (f"{name}-placements-1node.csv" if name == "deepspeech2" else f"{name}-placements.csv")
        seen = {(line["placement"], int(line["local_bsz"])): float(line["step_time"]) for line in _rows(file)}
        reference = max(batch for placement, batch in seen if placement == "1")
        for (placement, batch), time_s in seen.items():
            gpus = sum(map(int, placement))
            if len(placement) == 1:
                if (placement, batch) != ("1", reference):
                    ratio = time_s / seen["1", reference]
                    steps.append(MeasuredStep(source="Pollux one node", model=model, gpus=gpus, share=batch / reference,
                                              ratio=ratio))  # fmt: skip
            elif alone_s := seen.get((str(min(gpus, POLLUX_NODE_GPUS)), batch)):
                spreads.append(
                    MeasuredSpread(
                        source="Pollux nodes",
                        model=model,
                        gpu_type="t4",
                        gpus=gpus,
                        nodes=len(placement),
                        gbps=SOCKET_GBPS,
                        pace=seen["1", reference] / alone_s,
                        ratio=time_s / alone_s,
                    )
                )
    return steps, spreads


def _rubick(folder: Path) -> tuple[list[MeasuredStep], list[MeasuredSpread]]:
    """Return strong scaling on nodes with 8 A800 and 4 NICs, compared with the same plan on one node."""
    steps, spreads = [], []
    for model in ("bert", "gpt2", "roberta", "vit"):
        seen = {(row["exec_plan"], row["placement"]): float(row["iter_time"]) for row in _rubick_rows(folder, model)}
        for (plan, placement), time_s in seen.items():
            gpus = sum(map(int, placement))
            alone_s = seen.get((plan, str(gpus)))
            if plan == "gc" and len(placement) == 1 and gpus > 1:
                ratio = time_s / seen["gc", "1"]
                steps.append(
                    MeasuredStep(source="Rubick one node", model=model, gpus=gpus, share=1 / gpus, ratio=ratio)
                )
            if plan in RUBICK_KINDS and len(placement) > 1 and alone_s:
                spreads.append(
                    MeasuredSpread(
                        source=RUBICK_KINDS[plan] if len(set(placement)) == 1 else "Rubick uneven",
                        model=model,
                        gpu_type="a800",
                        gpus=gpus,
                        nodes=len(placement),
                        gbps=_rubick_gbps(placement),
                        pace=seen["gc", "8"] / alone_s,
                        ratio=time_s / alone_s,
                    )
                )
    return steps, spreads


def _rubick_large(folder: Path) -> tuple[list[MeasuredStep], list[MeasuredSpread]]:
    """Return the models that fill whole nodes: the fastest plan of each placement, compared with full nodes."""
    steps, spreads = [], []
    for model in ("llama7", "llama30"):
        best: dict[str, float] = {}
        for row in _rubick_rows(folder, model):
            if row["exec_plan"].isdigit():
                best[row["placement"]] = min(float(row["iter_time"]), best.get(row["placement"], float("inf")))
        packed = {8 * len(placement): placement for placement in best if not placement.strip("8")}
        base = min(packed)
        base_s = best[packed[base]]
        for gpus, placement in packed.items():
            if gpus != base:
                ratio = best[placement] / base_s
                step = MeasuredStep(source="Rubick nodes", model=model, gpus=gpus, share=1 / gpus, base_gpus=base,
                                    base_share=1 / base, ratio=ratio)  # fmt: skip
                steps.append(step)
        for placement, time_s in best.items():
            near = packed.get(sum(map(int, placement)), placement)
            if placement != near:
                spreads.append(
                    MeasuredSpread(
                        source="Rubick",
                        model=model,
                        gpu_type="a800",
                        gpus=8 * len(near),
                        nodes=len(placement),
                        gbps=_rubick_gbps(placement),
                        best_nodes=len(near),
                        best_gbps=_rubick_gbps(near),
                        pace=base_s / best[near],
                        ratio=time_s / best[near],
                    )
                )
    return steps, spreads


def _rubick_rows(folder: Path, model: str) -> Iterator[dict[str, str]]:
    return _rows(folder / f"{model}-placements.csv")


def _rubick_gbps(placement: str) -> float:
    """Return the bandwidth of the node with the fewest GPUs of the gang: one NIC for every two of its GPUs."""
    return RUBICK_NIC_GBPS * -(-int(min(placement)) // RUBICK_GPUS_PER_NIC)


def _shockwave(file: Path) -> Iterator[MeasuredStep]:
    """Yield weak scaling on one node with 8 V100, measured in Wisconsin; speeds are steps summed over all GPUs."""
    seen = {
        (model_key(row["model"]), int(row["batch_size"]), int(row["scale_factor"])): float(row["steps_per_s"])
        for row in _rows(file)
        if row["cluster"] == "wisr" and row["consolidated"] == "1" and row["model"] in GAVEL_GANGS
    }
    for (model, batch, gpus), steps_per_s in seen.items():
        reference = max(size for name, size, _ in seen if name == model and seen[name, size, 1] > 0)
        if steps_per_s > 0 and (batch, gpus) != (reference, 1):
            ratio = gpus / steps_per_s * seen[model, reference, 1]
            yield MeasuredStep(source="Shockwave V100", model=model, gpus=gpus, share=batch / reference, ratio=ratio)


def _gavel_spreads(rows: Sequence[Mapping[str, str]]) -> Iterator[MeasuredSpread]:
    """Yield V100 gangs with one GPU per server, compared with one GPU alone at the same batch per GPU."""
    seen = {
        (model_key(row["model"]), int(row["batch_size"]), int(row["scale_factor"])): float(
            row["steps_per_s_simulation_file"]
        )
        for row in rows
        if row["gpu_type"] == "v100" and row["consolidated"] == "0" and row["model"] in GAVEL_GANGS
    }
    for (model, batch, gpus), steps_per_s in seen.items():
        if gpus > 1 and steps_per_s > 0:
            alone = seen[model, batch, 1]
            pace = alone / seen[model, max(size for name, size, _ in seen if name == model), 1]
            yield MeasuredSpread(source="Gavel V100", model=model, gpus=gpus, nodes=gpus, gbps=SOCKET_GBPS, pace=pace,
                                 ratio=gpus * alone / steps_per_s)  # fmt: skip


def _chronus(file: Path) -> Iterator[MeasuredSpread]:
    """Yield the inflation of convolutional networks on 2 and 4 nodes of a cluster that is not described."""
    for name, by_gpus in json.loads(file.read_text(encoding="utf-8")).items():
        for gpus, by_nodes in by_gpus.items():
            for nodes, speed in by_nodes.items():
                if nodes != "1":
                    yield MeasuredSpread(source="Chronus", model=model_key(name), gpus=int(gpus), nodes=int(nodes),
                                         gbps=SOCKET_GBPS, ratio=1 / speed)  # fmt: skip


def _deepshare_spreads(file: Path) -> Iterator[MeasuredSpread]:
    """Yield gangs on four nodes compared with two, InfiniBand off, without extrapolated rows."""
    seen = {
        (model_key(row["model"]), int(row["gpus"]), int(row["nodes"])): float(row["samples_per_s"])
        for row in _rows(file)
        if row["extrapolated"] == "0"
    }
    for (model, gpus, nodes), samples_per_s in seen.items():
        if nodes == 4:
            yield MeasuredSpread(
                source="DeepShare nodes",
                model=model,
                gpus=gpus,
                nodes=4,
                gbps=SOCKET_GBPS,
                best_nodes=2,
                best_gbps=SOCKET_GBPS,
                ratio=seen[model, gpus, 2] / samples_per_s,
            )


def _deepshare_contention(file: Path) -> Iterator[Beside]:
    for row in _rows(file):
        if row["extrapolated"] == "0":
            mine, other = model_key(row["model"]), model_key(row["corunner_model"])
            yield Beside(source="DeepShare beside", mine=mine, other=other, speed=float(row["throughput_ratio"]))


def _gavel_pairs(file: Path) -> Iterator[Beside]:
    """Yield the speed of each of two jobs on one GPU, without pairs that did not run."""
    for row in _rows(file):
        for mine, other in (("1", "2"), ("2", "1")):
            alone, beside = float(row[f"isolated{mine}"]), float(row[f"colocated{mine}"])
            is_same = row["model1"] == row["model2"] and row["batch_size1"] == row["batch_size2"]
            if alone == 0 or beside == 0 or (is_same and mine == "2"):
                continue
            is_v100, is_unusable = row["gpu_type"] == "v100", row[f"model{mine}"] in V100_PAIRS_UNUSABLE
            source = (
                "Gavel pairs" if is_v100 != is_unusable else "Gavel K80 pairs" if not is_v100 else "Gavel odd pairs"
            )
            yield Beside(
                source=source,
                mine=model_key(row[f"model{mine}"], row[f"batch_size{mine}"]),
                other=model_key(row[f"model{other}"], row[f"batch_size{other}"]),
                speed=beside / alone,
            )


def _gavel_speeds(rows: Sequence[Mapping[str, str]]) -> Iterator[Speed]:
    """Yield speeds on K80 over V100, each batch size separately."""
    seen = {
        (row["gpu_type"], model_key(row["model"]), row["batch_size"]): float(row["steps_per_s_physical_file"])
        for row in rows
        if row["consolidated"] == "1" and row["scale_factor"] == "1"
    }
    for (gpu_type, model, batch), steps_per_s in seen.items():
        if gpu_type == "k80" and steps_per_s > 0 and seen["v100", model, batch] > 0:
            yield Speed(
                source="Gavel types", model=model, gpu_type="k80", speed=steps_per_s / seen["v100", model, batch]
            )


def _zeus(file: Path) -> dict[tuple[str, ...], float]:
    """Return the time per epoch, seconds, at the highest power limit of each run."""
    best: dict[tuple[str, ...], tuple[float, float]] = {}
    for row in _rows(file):
        run = (row["dataset"], row["network"], row["batch_size"], row["optimizer"])
        best[run] = max(best.get(run, (0.0, 0.0)), (float(row["power_limit"]), float(row["time_per_epoch"])))
    return {run: time_s for run, (_, time_s) in best.items()}


def _zeus_speeds(zeus: Mapping[str, Mapping[tuple[str, ...], float]]) -> Iterator[Speed]:
    """Yield speeds on P100 and A40 over V100, separately for each task and batch size that both ran."""
    for gpu_type in ("p100", "a40"):
        for run, time_s in zeus[gpu_type].items():
            if run in zeus["v100"]:
                yield Speed(
                    source="Zeus types", model=ZEUS[run[1]], gpu_type=gpu_type, speed=zeus["v100"][run] / time_s
                )


def _t4_speeds(folder: Path, v100: Mapping[tuple[str, ...], float]) -> Iterator[Speed]:
    """Yield samples per second on T4 in Pollux over V100 in Zeus: the same task, not the same program."""
    for model, name, batch, run, samples in T4_PAIRS:
        step_s = next(float(row["step_time"]) for row in _rows(folder / f"{name}-placements.csv")
                      if row["placement"] == "1" and row["local_bsz"] == str(batch))  # fmt: skip
        yield Speed(
            source="Pollux T4 over Zeus V100", model=model, gpu_type="t4", speed=batch / step_s * v100[run] / samples
        )


def _nvidia_speeds(file: Path) -> Iterator[Speed]:
    """Yield speeds on one A100 over one V100 in mixed precision, the best rate of each."""
    best: dict[tuple[str, str], float] = {}
    for row in _rows(file):
        model, wanted = NVIDIA.get(row["readme_path"].removesuffix("/README.md"), ("", ""))
        cells = dict(zip(json.loads(row["header_cells_json"]), json.loads(row["row_cells_json"]), strict=False))
        section = row["section_path"]
        if not model or wanted not in section or cells.get("GPUs") != "1":
            continue
        rate = next(cells[name] for name in cells if re.match(r"Throughput - [Mm]ixed precision", name))
        gpu_type = "a100" if "A100" in section else "v100"
        number = float(re.sub(r"[^\d.]", "", rate))
        best[model, gpu_type] = max(best.get((model, gpu_type), 0.0), number)
    for (model, gpu_type), rate_per_s in best.items():
        if gpu_type == "a100":
            yield Speed(source="NVIDIA types", model=model, gpu_type="a100", speed=rate_per_s / best[model, "v100"])
