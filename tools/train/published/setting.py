"""Every constant of the published setting, on one page."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Model(NamedTuple):
    """A model that jobs train: its cost per batch, its size and its effective bandwidth between nodes."""

    name: str
    batches_per_epoch: int
    local_s: float
    size_mb: float
    inter_mb_s: float
    worker_gpus: int = 4


MODELS: Final = (
    Model("resnet-50", 115, 0.449, 102.2, 91.9),
    Model("vgg-16", 115, 0.535, 553.4, 233.0),
    Model("resnext-110", 390, 0.226, 6.92, 59.5),
    Model("inception-bn", 120, 0.815, 42.1, 145.9),
    Model("seq2seq", 780, 0.075, 36.5, 120.1),
    Model("cnn-text", 193, 0.585, 24.0, 60.8, worker_gpus=0),
    Model("dssm", 349, 0.567, 6.0, 92.1, worker_gpus=0),
    Model("wlm", 165, 0.154, 19.2, 10.4),
)


class TypeCode(StrEnum):
    """How an observation holds the model of a job: one column for each model, or one number."""

    ONE_HOT = "one-hot"
    SCALAR = "scalar"


class Placement(StrEnum):
    """The node of a task: the least loaded one where it fits, or the least loaded one, where it fits or not."""

    FITS = "fits"
    LEAST_LOADED = "least-loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published setting; the defaults are the paper's 48 nodes and 60 jobs.

    `length_min` and `length_ratio` are the length classes of jobs and their shares; the class is the model. A job of a
    class takes its length on `reference_tasks` workers and as many parameter servers (our reading: the published
    numbers of epochs are missing). `spread_ratio` varies the length of each job uniformly.

    Arrivals follow a pattern of one day with the published least, mean and greatest values; the published values slot
    by slot are missing, so the pattern is ours. A job has `batches_per_step` batches in one synchronous step over all
    its workers, and a step costs `task_s` for each task that takes part; both are ours, see `speeds`.
    """

    nodes: int = 48
    node_cpus: int = 8
    node_gpus: int = 8
    worker_cpus: int = 2
    server_cpus: int = 2
    window: int = 20
    jobs: int = 60
    cap: int = 32
    slot_s: float = 1200.0
    most_slots: int = 1000

    pattern_slots: int = 72
    pattern_least: float = 3.0
    pattern_mean: float = 33.7
    pattern_most: float = 82.0
    most_arrivals: int = 3
    length_min: tuple[float, ...] = (35.0, 180.0, 300.0, 436.0, 559.0, 679.0, 806.0, 1155.0)
    length_ratio: tuple[float, ...] = (0.681, 0.160, 0.054, 0.025, 0.020, 0.018, 0.013, 0.029)
    spread_ratio: float = 0.0

    models: tuple[Model, ...] = MODELS
    reference_tasks: int = 4
    batches_per_step: float = 8.0
    task_s: float = 0.001
    speed_error: float = 0.0

    starter: bool = True
    placement: Placement = Placement.FITS
    mask_unfit: bool = False
    type_code: TypeCode = TypeCode.ONE_HOT
    remaining_as_fraction: bool = False
    resource_as_share: bool = False

    @property
    def n_actions(self) -> int:
        """One more worker, one more parameter server, or both, for each job of the window; and stop."""
        return 3 * self.window + 1

    @property
    def n_features(self) -> int:
        """The columns of one job in an observation."""
        return 5 + (len(self.models) if self.type_code is TypeCode.ONE_HOT else 1)
