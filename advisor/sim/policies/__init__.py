"""The policies that can be simulated, by name: a row each, or a file where a policy has code of its own."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.sim.policies import dally, dally_preempt, drf, gandiva, lifted, optimus, order, slurm, tetris, themis
from advisor.sim.policies.advised import (
    AdvisedSlurm,
    as_believed,
    few_rollouts,
    no_forecasts,
    shipped_models,
    shipped_policy,
    truth,
    truth_with_noise,
)
from advisor.sim.policies.dally import Dally, dally_policy
from advisor.sim.policies.queue_policy import LAS, QueuePolicy
from advisor.sim.queueing import Key
from advisor.sim.simulated_policy import SimulatedPolicy

# The timers for nodes and for a leaf that the auto-tuner assumes before it has seen a gang wait.
_ASSUMED_TIMERS_S: Final = (600.0, 1800.0)
_TIMERS: Final = frozenset({Lever.SWITCHES, Lever.NODE_RANGE})

_TABLE: tuple[SimulatedPolicy, ...] = (
    slurm.POLICY,
    QueuePolicy(
        name="fifo",
        summary="first come, first served; the head blocks the queue",
        key=lambda jobs: jobs["submit_time"],
        strict=True,
    ),
    QueuePolicy(
        name="sjf",
        summary="shortest job first; the head blocks the queue",
        key=lambda jobs: jobs["believed_s"],
        strict=True,
    ),
    QueuePolicy(
        name="srtf",
        summary="shortest remaining time first, preemptive",
        key=Key.REMAINING,
        strict=False,
        preemptive=True,
    ),
    QueuePolicy(
        name="srsf",
        summary="shortest remaining service (time x GPUs) first, preemptive",
        key=Key.REMAINING,
        by_gpus=True,
        strict=False,
        preemptive=True,
    ),
    # Helios, SC 2021. The prediction is ours: the mean run time of the user's jobs of this size that have ended, and
    # before the first has ended the run time of `--speeds`.
    QueuePolicy(
        name="qssf",
        summary="quasi-shortest service first: time predicted from the user's history x GPUs",
        key=Key.PREDICTED,
        by_gpus=True,
        strict=True,
    ),
    LAS,
    drf.POLICY,
    tetris.POLICY,
    optimus.POLICY,
    gandiva.POLICY,
    themis.POLICY,
    dally.POLICY,
    dally_preempt.POLICY,
    # Dally without delay scheduling.
    dally_policy(
        "dally-nowait",
        "dally with all timers at 0: takes the closest place that is free",
        lambda: Dally(fixed_s=(0.0, 0.0)),
    ),
    # Gangs that the network slows wait for their best place, however long.
    dally_policy(
        "dally-consolidated",
        "dally with timers that never end: waits for the best place",
        lambda: Dally(fixed_s=(np.inf, np.inf)),
    ),
    dally_policy(
        "dally-fixed",
        "dally with fixed timers, 10 min for nodes and 30 min for a leaf",
        lambda: Dally(fixed_s=_ASSUMED_TIMERS_S),
    ),
    # The most that a change of order can gain.
    order.BY_LIMITS,
    order.BY_RUN_TIMES,
    order.FAIR,
    *lifted.PRESETS,
    # What the submit script gains alone, and beside lifts.
    slurm.PIN,
    lifted.PINNED,
    # What Dally's waiting gains within Slurm.
    AdvisedSlurm(
        name="slurm+dally",
        summary="Slurm with this advisor's self-tuning delay timers alone, applied",
        forecaster=as_believed,
        levers=_TIMERS,
    ),
    AdvisedSlurm(
        name="slurm+sizes",
        summary="Slurm with this advisor's sizes for jobs that declare a range alone, applied",
        forecaster=as_believed,
        levers=frozenset({Lever.GPU_COUNT}),
    ),
    # What each lever adds to lifts.
    AdvisedSlurm(
        name="lift+dally",
        summary="Slurm with this advisor's lifts and delay timers alone, applied",
        forecaster=as_believed,
        levers=_TIMERS | {Lever.NICE},
    ),
    AdvisedSlurm(
        name="lift+sizes",
        summary="Slurm with this advisor's lifts and sizes alone, applied",
        forecaster=as_believed,
        levers=frozenset({Lever.NICE, Lever.GPU_COUNT}),
    ),
    # Time limits and assumed curves only.
    AdvisedSlurm(
        name="rules",
        summary="Slurm with this advisor's rule-based planner, its advice applied",
        forecaster=no_forecasts,
    ),
    AdvisedSlurm(
        name="forecast",
        summary="Slurm with this advisor, its advice applied, forecast by the shipped models and the jobs ended so far",
        forecaster=shipped_models,
    ),
    # What learned policies and the rule `price` decide in place of the rules, under the names of `recommend --policy`.
    *(
        AdvisedSlurm(
            name=name,
            summary=f"forecast, with {words} chosen by the policy {name}",
            forecaster=shipped_models,
            policy=partial(shipped_policy, name),
        )
        for name, words in (
            ("price", "sizes of elastic jobs"),
            ("dl2", "sizes of elastic jobs"),
            ("marl", "nodes of gangs"),
            ("metarl", "nodes of gangs"),
        )
    ),
    AdvisedSlurm(
        name="rules-rollout",
        summary="rules, with changes other than lifts sent only if they gain in rollouts",
        forecaster=no_forecasts,
        trial=few_rollouts,
    ),
    AdvisedSlurm(
        name="oracle-rollout",
        summary="forecast-oracle, with changes other than lifts sent only if they gain in rollouts",
        forecaster=truth,
        trial=few_rollouts,
    ),
    AdvisedSlurm(
        name="forecast-noisy",
        summary="Slurm with this advisor, its advice applied, "
        "its forecasts the truth within 30 % (or --speeds noisy=X)",
        forecaster=truth_with_noise,
    ),
    # The most that forecasts can gain: true run times, scaling and cost of spreading.
    AdvisedSlurm(
        name="forecast-oracle",
        summary="Slurm with this advisor, its advice applied, its forecasts the truth",
        forecaster=truth,
    ),
)
POLICIES: Mapping[str, SimulatedPolicy] = {policy.name: policy for policy in _TABLE}
