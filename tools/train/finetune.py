"""Continues the training of a learned policy from a journal.

    python -m tools.train.finetune --journal FILE --models DIR --kind policy-dl2 [--version VERSION] [--seed N]
                                   [--steps N] [--user-share X] [--account-share X] [--dry-run]

Raises the probability of choices whose jobs did better than is usual, and lowers that of the others. The result is
published beside the other versions and not put in use: see it in shadow and in `sadvise models compare` first. What one
user can teach is bounded (docs/decisions/forecasts.md): by the caps of `experience`, by clipped
returns, and by the distance of the new version from the served one on what the journal observed.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import torch
from torch import Tensor

from advisor.clock import SystemClock
from advisor.errors import AdvisorError, JournalError, ModelError
from advisor.features.policy import Policy
from advisor.fit.publish import publish_graph
from advisor.journal import SqliteJournal
from advisor.predict.library import Held, Library, checked_content
from advisor.predict.manifest import GRAPH, POLICY, Entry
from advisor.predict.served_policy import served
from advisor.text import escaped
from advisor.trial.evidence import ACCOUNT_SHARE, USER_SHARE, capped
from advisor.view.terminal import instant
from tools.train.experience import Experience, Observation, Rows, read_experience
from tools.train.imitation import deterministic
from tools.train.networks import PerOption, choice_logits
from tools.train.policy_graph import CardText, card_of, exported, from_onnx

# The largest mean divergence of the choices of a new version from those of the served one, in nats. By Pinsker's
# inequality the probabilities of choices move by at most sqrt(0.05 / 2) = 0.16 in the mean.
MOST_DIVERGENCE: Final = 0.05
# How often a step that goes too far is halved at most.
HALVINGS: Final = 10
LEAST_SAMPLES: Final = 100
STEPS: Final = 200
BATCH: Final = 256
LEARNING_RATE: Final = 1e-3
# How much the divergence counts in the loss, beside the returns.
_PULL: Final = 1.0
# Evaluated at once, so that a long journal fits into memory.
_CHUNK: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedNetwork:
    """A network after a fine-tuning; `share` is how much of the step was taken, 1 or a power of 1/2.

    `divergence` is the larger of the mean divergences on the samples and on all observations, in nats.
    `moved` is the share of observations with another choice than before, `objective` the loss by step.
    """

    network: PerOption
    share: float
    divergence: float
    moved: float
    objective: Sequence[float]


def finetuned(
    network: PerOption,
    samples: Sequence[Observation],
    observations: Sequence[Observation],
    *,
    seed: int,
    steps: int = STEPS,
    bound: float = MOST_DIVERGENCE,
) -> TunedNetwork:
    """Train a copy of a network on samples that have a return; raises `ModelError` where it cannot stay in bounds."""
    chance = np.random.default_rng(seed)
    torch.manual_seed(seed)
    trained = copy.deepcopy(network)
    advantages = _advantages(samples)
    optimiser = torch.optim.Adam(trained.parameters(), lr=LEARNING_RATE)
    objective: list[float] = []
    for _ in range(steps):
        drawn = chance.choice(len(samples), size=min(BATCH, len(samples)), replace=False).tolist()
        batch = [samples[place] for place in drawn]
        options, is_there = _filled([sample.options for sample in batch])
        chosen = torch.tensor([sample.chosen for sample in batch])
        before = _log_probabilities(network, options, is_there).detach()
        after = _log_probabilities(trained, options, is_there)
        of_choice = after.gather(1, chosen[:, None])[:, 0]
        gained = (torch.tensor([advantages[place] for place in drawn]) * of_choice).mean()
        loss = _PULL * _divergence(before, after).mean() - gained
        if not torch.isfinite(loss):
            raise ModelError("the training gives a loss that is not a finite number: nothing was published")
        optimiser.zero_grad()
        torch.autograd.backward([loss])
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimiser.step()
        objective.append(float(loss.detach()))
    return _within(network, trained, samples, observations, bound, objective)


def _within(
    network: PerOption,
    trained: PerOption,
    samples: Sequence[Observation],
    observations: Sequence[Observation],
    bound: float,
    objective: Sequence[float],
) -> TunedNetwork:
    """Return the longest of the steps 1, 1/2, 1/4, ... towards a trained network that stays within the bound."""
    if not all(bool(torch.isfinite(weight).all()) for weight in trained.state_dict().values()):
        raise ModelError("the training gives weights that are not finite numbers: nothing was published")
    share = 1.0
    for _ in range(HALVINGS + 1):
        nearer = copy.deepcopy(network)
        with torch.no_grad():
            for mine, start, end in zip(nearer.parameters(), network.parameters(), trained.parameters(), strict=True):
                mine.copy_(start + share * (end - start))
        divergence = max(mean_divergence(network, nearer, part) for part in (samples, observations) if part)
        if divergence <= bound:
            moved = moved_share(network, nearer, observations or samples)
            return TunedNetwork(network=nearer, share=share, divergence=divergence, moved=moved, objective=objective)
        share /= 2.0
    raise ModelError(
        f"the trained policy is {divergence:.2g} nats from the served one, more than {bound:g}, after {HALVINGS} "
        "halvings: nothing was published"
    )


def mean_divergence(before: PerOption, after: PerOption, observations: Sequence[Observation]) -> float:
    """Return the mean Kullback-Leibler divergence of the choices of one network from those of another, in nats."""
    total = 0.0
    with torch.no_grad():
        for options, is_there in _chunks(observations):
            old, new = (_log_probabilities(network, options, is_there) for network in (before, after))
            total += float(_divergence(old, new).sum())
    return total / len(observations)


def moved_share(before: PerOption, after: PerOption, observations: Sequence[Observation]) -> float:
    """Return the share of decisions for which two networks choose different options."""
    moved = 0
    with torch.no_grad():
        for options, is_there in _chunks(observations):
            old, new = (choice_logits(network(options, is_there), is_there).argmax(1) for network in (before, after))
            moved += int((old != new).sum())
    return moved / len(observations)


def probabilities(network: PerOption, observations: Sequence[Observation]) -> list[Tensor]:
    """Return the probabilities of each option and of stopping, `(n_options + 1,)`, of each decision."""
    found = []
    with torch.no_grad():
        for observation in observations:
            options, is_there = _filled([observation.options])
            found.append(_log_probabilities(network, options, is_there)[0].exp())
    return found


def _advantages(samples: Sequence[Observation]) -> list[float]:
    """Return the returns less the median over users of their means, which no user moves far."""
    by_user: dict[str, list[float]] = {}
    for sample in samples:
        by_user.setdefault(sample.user, []).append(sample.value or 0.0)
    usual = median(sum(values) / len(values) for values in by_user.values())
    return [(sample.value or 0.0) - usual for sample in samples]


def _log_probabilities(network: PerOption, options: Tensor, is_there: Tensor) -> Tensor:
    return torch.log_softmax(choice_logits(network(options, is_there), is_there), dim=-1)


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """Return the divergence of each decision `(n,)` from log-probabilities `(n, n_options + 1)`."""
    difference = torch.where(torch.isinf(before), torch.zeros_like(before), before - after)
    return (before.exp() * difference).sum(dim=-1)


def _filled(decisions: Sequence[Rows]) -> tuple[Tensor, Tensor]:
    """Return decisions of different lengths as one `(n, n_options, n_columns)`, and which options are there."""
    longest, columns = max(map(len, decisions)), decisions[0].shape[1]
    options = np.zeros((len(decisions), longest, columns), dtype=np.float32)
    is_there = np.zeros((len(decisions), longest), dtype=np.bool_)
    for place, rows in enumerate(decisions):
        options[place, : len(rows)], is_there[place, : len(rows)] = rows, True
    return torch.from_numpy(options), torch.from_numpy(is_there)


def _chunks(observations: Sequence[Observation]) -> list[tuple[Tensor, Tensor]]:
    starts = range(0, len(observations), _CHUNK)
    return [_filled([one.options for one in observations[start : start + _CHUNK]]) for start in starts]


def disagreeing(policy: Policy, network: PerOption, observations: Sequence[Observation]) -> int:
    """Count the decisions of the served model whose recorded best option or its score is another one now."""
    wrong = 0
    for seen in (one for one in observations if one.digest == policy.digest):
        with torch.no_grad():
            scores = network(torch.from_numpy(seen.options)).numpy()
        is_same = abs(float(scores.max()) - seen.best_score) <= 1e-4 * max(1.0, abs(seen.best_score))
        wrong += not is_same
    return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Finetuning:
    """What to train from which journal; `version` None is the one in use."""

    journal: Path
    models: Path
    kind: str
    version: str | None = None
    seed: int = 1
    steps: int = STEPS
    user_share: float = USER_SHARE
    account_share: float = ACCOUNT_SHARE
    dry_run: bool = False


def finetune(given: Finetuning, report: Callable[[str], None] = print) -> Entry | None:
    """Read, train, check and publish; raises `AdvisorError` with one line, and publishes nothing, where that fails."""
    journal, kind = given.journal, given.kind
    user_share, account_share = given.user_share, given.account_share
    if not kind.startswith(POLICY):
        raise ModelError(f"{kind!a} is no learned policy: give {POLICY}NAME")
    library = Library(given.models)
    held = library.find(kind, given.version)
    policy, network = served(held, library), from_onnx(checked_content(held)[GRAPH], name=held.name)
    experience = _read(journal, held, policy)
    samples = experience.samples
    wrong = disagreeing(policy, network, experience.observations)
    if wrong:
        raise ModelError(f"{journal}: {wrong} decisions of {held.name} have other scores now: not learnt from")
    if len(samples) < LEAST_SAMPLES:
        raise ModelError(
            f"{journal}: {len(samples)} choices of {kind} have an outcome to learn from, fewer than {LEAST_SAMPLES}"
        )
    kept = capped(samples, seed=given.seed, user_share=user_share, account_share=account_share)
    if len(kept) < LEAST_SAMPLES:
        raise ModelError(
            f"{journal}: {len(kept)} of {len(samples)} choices are left where no user has more than {user_share:.0%} "
            f"and no account more than {account_share:.0%} of them, fewer than {LEAST_SAMPLES}"
        )
    step = finetuned(network, kept, experience.observations, seed=given.seed, steps=given.steps)
    report(f"{experience.cycles} cycles, {len(experience.observations)} decisions, {len(samples)} with a return")
    report(f"learnt from {len(kept)} of {len({sample.user for sample in kept})} users")
    for reason, count in sorted(experience.left_out.items()):
        report(f"left out: {count} {escaped(reason)}")
    report(f"took {step.share:g} of the step: {step.divergence:.3g} nats, {step.moved:.1%} of the choices differ")
    made = exported(
        step.network,
        kind=kind,
        columns=held.entry.columns,
        decisions=[one.options for one in experience.observations],
        seed=given.seed,
        parameters={"from": held.entry.version, "samples": len(kept)},
        lever=next(iter(policy.levers)),
    )
    if given.dry_run:
        report("nothing was published")
        return None
    card = card_of(_training(held, experience, kept, step, given))
    today = instant(SystemClock().now())[:10]
    entry = publish_graph(made, given.models, library.next_version(kind), today=today, card=card)
    report(f"published {kind} {entry.version}, not in use: sadvise models compare {kind} {held.entry.version} "
           f"{entry.version}, then sadvise models use {kind} {entry.version}")  # fmt: skip
    return entry


def _read(path: Path, held: Held, policy: Policy) -> Experience:
    with SqliteJournal.read_only(path) as journal:
        checked = journal.verify()
        if not checked.is_intact:
            tables = ", ".join(checked.tables) or f"the audit from row {checked.broken} on"
            raise JournalError(f"{path}: another program has changed {tables}: not learnt from")
        return read_experience(
            journal, policy.name, held.entry.columns, lever=next(iter(policy.levers)), progress=_progress
        )


def _progress(cycles: int) -> None:
    if sys.stderr.isatty() and cycles % 10 == 0:
        sys.stderr.write(f"\r{cycles} cycles planned again")


def _training(
    held: Held,
    experience: Experience,
    kept: Sequence[Observation],
    step: TunedNetwork,
    given: Finetuning,
) -> CardText:
    returns = np.array([sample.value for sample in kept])
    tenth = max(1, len(step.objective) // 10)
    return CardText(
        text=f"{held.name}, trained further on a journal by `python -m tools.train.finetune`.",
        data={
            "recorded cycles": f"{experience.cycles:,}",
            "decisions": f"{len(experience.observations):,}",
            "choices with a return": f"{len(experience.samples):,}",
            "choices learnt from": f"{len(kept):,}",
            "users, accounts": f"{len({one.user for one in kept}):,}, {len({one.account for one in kept}):,}",
            "split": "none: judged in shadow and by `sadvise models compare` on later cycles",
        },
        metrics={
            "mean return of the choices learnt from": float(returns.mean()),
            "objective, first tenth of the steps": float(np.mean(step.objective[:tenth])),
            "objective, last tenth": float(np.mean(step.objective[-tenth:])),
            "share of the step taken": step.share,
            "mean divergence from the version before, nats": step.divergence,
            "share of decisions with another choice": step.moved,
        },
        limits=[
            "The returns compare with forecasts, not with a run without the change, and hold nothing of other jobs.",
            "The served policy takes the best option, so the journal says nothing of options that it never chose.",
        ],
        settings={
            "largest share of a user and of an account": f"{given.user_share:g}, {given.account_share:g}",
            "largest divergence": f"{MOST_DIVERGENCE:g} nats",
            "steps, batch, learning rate": f"{len(step.objective)}, {BATCH}, {LEARNING_RATE:g}",
        },
    )


def main() -> int:
    """Fine-tune as the options say; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", type=Path, required=True, help="the journal of the daemon; it is only read")
    parser.add_argument("--models", type=Path, required=True, help="the site's models, where the result is published")
    parser.add_argument("--kind", required=True, help=f"{POLICY}NAME")
    parser.add_argument("--version", help="the version to begin from; default: the one in use")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of the optimiser; default {STEPS}")
    parser.add_argument("--user-share", type=float, default=USER_SHARE, help=f"largest share of a user: {USER_SHARE}")
    parser.add_argument(
        "--account-share", type=float, default=ACCOUNT_SHARE, help=f"largest share of an account: {ACCOUNT_SHARE}"
    )
    parser.add_argument("--dry-run", action="store_true", help="publish nothing")
    options = parser.parse_args()
    deterministic()
    try:
        finetune(Finetuning(**vars(options)))
    except AdvisorError as err:
        sys.stderr.write(f"finetune: {escaped(str(err))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
