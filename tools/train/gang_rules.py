"""Rules that place gangs: those that the paper's line of work compares with, and the one that teaches."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from advisor.features.observe.graph import Floats
from advisor.features.observe.least_loss import least_loss
from advisor.features.observe.pointer import Choice, best_fit, choose_all
from tools.train.parted_cluster import GangDecision, PartedCluster

LEAST_SAVING: Final = 0.05
# Return the next server of a choice, None where it should wait.
NextServer = Callable[[Choice], int | None]
# Return the action of a decision, as `PartedCluster.take` takes it.
Decide = Callable[[GangDecision], int | None]
# Return the order of all jobs, lower first, for one interval.
Order = Callable[[PartedCluster], Floats]


def load_balancing(choice: Choice) -> int | None:
    """Return the server with most free GPUs, which is the least loaded one."""
    return _most(choice, choice.usable.astype(np.float64))


def tetris(choice: Choice) -> int | None:
    """Return the server whose free GPUs align best with what is left of the gang: the largest product."""
    return _most(choice, np.minimum(choice.usable, choice.rest) * choice.usable.astype(np.float64))


def least_interference(choice: Choice) -> int | None:
    """Return the server on which gangs slow each other least; among equals the one with most free GPUs."""
    slows = choice.interference.slows_me + choice.interference.slows_others
    return _most(choice, choice.usable / 1e3 - slows)


def patient(choice: Choice) -> int | None:
    """Return the server of best fit, or wait for a better place, at most as long as that would save (delay scheduling).

    The place is worth what it saves of the believed run time; below a twentieth no gang waits for it.
    """
    gang = choice.gang
    if not choice.chosen and gang.gpus > 1:
        tried = replace(choice, chosen=[], taken=[])
        if choose_all(tried):
            leaves = len(np.unique(tried.leaf[tried.chosen]))
            here = 1.0 if len(tried.chosen) == 1 else gang.leaf_inflation if leaves == 1 else gang.spine_inflation
            best = 1.0 if gang.fewest_nodes == 1 else gang.leaf_inflation
            saved = here / best - 1.0
            if saved > LEAST_SAVING and gang.wait_s < saved * gang.run_s:
                return None
    return best_fit(choice)


def by_submission(cluster: PartedCluster) -> Floats:
    """Return the order of submission."""
    return np.asarray(cluster.state.jobs["submit_time"])


def by_alignment_and_work(cluster: PartedCluster) -> Floats:
    """Return the order of `advisor.sim.policies.tetris`: what fits the free GPUs best and has little work left."""
    jobs = cluster.state.jobs
    rows = cluster.pending
    fit = jobs["gpus"] * float(cluster.state.tally["gpus_free"][0])
    work = jobs["gpus"] * jobs["believed_s"]
    weight = fit[rows].mean() / max(float(work[rows].mean()), 1e-9) if len(rows) else 0.0
    return np.asarray(weight * work - fit)


def by_work(cluster: PartedCluster) -> Floats:
    """Return the order of the work that jobs are believed to bring, least first: GPUs times run time."""
    jobs = cluster.state.jobs
    return np.asarray(jobs["gpus"] * jobs["believed_s"])


RULES: Final[Mapping[str, tuple[NextServer, Order]]] = {
    "load balancing": (load_balancing, by_submission),
    "Tetris": (tetris, by_alignment_and_work),
    "least interference": (least_interference, by_submission),
    "best fit": (best_fit, by_submission),
    "best fit, least work first": (best_fit, by_work),
    "best fit with patience, least work first": (patient, by_work),
}


def action_of(decision: GangDecision, next_server: NextServer) -> int | None:
    """Return the action of a rule: a server, or the part with most free GPUs for a gang that does not fit, or wait."""
    choice = decision.choice
    server = next_server(choice)
    if server is None and not choice.usable.any() and decision.forwards.any():
        return len(choice.usable) + most_free(decision)
    return server


def most_free(decision: GangDecision) -> int:
    """Return the agent with the largest share of free GPUs among those that the gang can be forwarded to."""
    return int(np.where(decision.forwards, decision.reports[:, 0], -1.0).argmax())


def play(cluster: PartedCluster, decide: Decide) -> Floats:
    """Run a workload to its end; return the completion times, `(n_jobs,)`."""
    while (decision := cluster.next_decision()) is not None:
        while not cluster.take(decision, decide(decision)):
            pass
    return cluster.jct_s


def play_by_rule(cluster: PartedCluster, rule: str) -> Floats:
    """Run a workload to its end by a rule of `RULES`, in its order; return the completion times, `(n_jobs,)`."""
    next_server, cluster.order = RULES[rule]
    return play(cluster, lambda decision: action_of(decision, next_server))


def _most(choice: Choice, score: Floats) -> int | None:
    legal = choice.legal
    return int(np.where(legal, score, -np.inf).argmax()) if legal.any() else None


def cheapest_action(decision: GangDecision) -> int | None:
    """Return the action of `least_loss`."""
    return least_loss(decision.choice, can_wait=decision.can_wait)
