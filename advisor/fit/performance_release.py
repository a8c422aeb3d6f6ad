"""Publishes the performance model of a site, and the policy that looks at it, beside the versions in use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from advisor.errors import ModelError
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import JournalJobs
from advisor.fit.performance_site import SiteFit
from advisor.fit.publish import Exported, exported_again, publish_graph
from advisor.predict.library import PERFORMANCE, Held, Library
from advisor.predict.manifest import POLICY, Entry

# The policy that looks at a performance model, where a library holds it.
POLICY_KIND: Final = f"{POLICY}metarl"
_FIGURES: Final = {
    "aside": "jobs kept aside",
    "unseen": "of them, not seen by the version in use either",
    "families": "families among those",
    "gain": "log likelihood against the version in use, mean over jobs",
    "gain_error": "standard error of that",
    "gain_by_family": "log likelihood against the version in use, mean over families",
    "gain_by_family_error": "standard error of that mean",
    "coverage": "share within the 80 % intervals",
    "at_bound": "share of the effects at their bound",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The versions that an adaptation starts from: the prior, the version in use, and the policy in use if any."""

    prior: Held
    in_use: Held
    policy: Held | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What was published: a version of the performance model, and of the policy where there is one."""

    performance: Entry
    policy: Entry | None


def sources_of(library: Library) -> Sources:
    """Return what an adaptation starts from; raises `ModelError` where there is none.

    The prior is always the model that ships, so that what one night learns wrongly does not carry over to the next.
    """
    held = library.held()
    shipped = [one for one in held if one.entry.kind == PERFORMANCE and one.shipped]
    if not shipped:
        raise ModelError(f"no {PERFORMANCE} model ships with this release, and without a prior nothing can be adapted")
    kinds = {one.entry.kind for one in held}
    policy = library.find(POLICY_KIND, None) if POLICY_KIND in kinds else None
    looked_at = None if policy is None else library.performance_of(policy)
    return Sources(prior=shipped[-1], in_use=looked_at or library.find(PERFORMANCE, None), policy=policy)


def exported_fit(fit: SiteFit, read: JournalJobs, sources: Sources, *, seed: int) -> Exported:
    """Export a performance model of a site with the figures of the gate; raises `ModelError` if the graph is off."""
    return performance_exported(
        fit.model,
        seed=seed,
        # The names of models are those that users gave their jobs.
        private=read.hides_jobs,
        origin={
            "prior": sources.prior.entry.version,
            "until": fit.until,
            "gate": dict(fit.verdict.figures),
        },
    )


def publish_site(
    fit: SiteFit, read: JournalJobs, sources: Sources, folder: Path, version: str, *, today: str, seed: int
) -> Release:
    """Publish a performance model of a site, then the policy with it, neither in use; raises `ModelError`.

    A version is listed once all of its files are there, and that of the policy after the model that it looks at.
    """
    exported = exported_fit(fit, read, sources, seed=seed)
    performance = publish_graph(
        exported, folder, version, today=today, card=lambda entry: card_of_fit(entry, fit, read, sources)
    )
    policy = None
    if sources.policy is not None:
        policy = publish_graph(
            _with_performance(sources.policy, version),
            folder,
            version,
            today=today,
            card=lambda entry: _card_of_policy(entry, sources.policy, version),
        )
    return Release(performance=performance, policy=policy)


def _with_performance(policy: Held, version: str) -> Exported:
    """Return a policy with the same graph that looks at another version of the performance model."""
    return exported_again(policy, lambda text: json.dumps({**json.loads(text), PERFORMANCE: version}, sort_keys=True))


def _card_of_policy(entry: Entry, policy: Held | None, version: str) -> str:
    origin = "" if policy is None else policy.entry.version
    return (
        f"# {entry.kind} {entry.version}\n\n"
        f"The graph of {entry.kind} {origin}, which looks at {PERFORMANCE} {version}. Its weights are the same.\n\n"
        f"Published {entry.fitted} by `sadvise fit performance`; do not edit.\n"
    )


def card_of_fit(entry: Entry, fit: SiteFit, read: JournalJobs, sources: Sources) -> str:
    """Return the card of a performance model of a site as Markdown."""
    users, accounts = ({getattr(job, holder) for job in fit.jobs} for holder in ("user", "account"))
    data = {
        "ended GPU jobs": f"{read.outcomes:,}",
        "recorded cycles": f"{read.cycles:,}",
        **{f"left out: {why}": f"{count:,}" for why, count in sorted(read.left_out.items())},
        "jobs with a run time to learn from": f"{len(read.jobs):,}",
        "of families on two kinds of place or more": f"{fit.comparable:,}",
        "of the last": f"{fit.stretch:,}",
        "learnt from, within the shares of users and accounts": f"{len(fit.jobs):,}",
        "users, accounts": f"{len(users):,}, {len(accounts):,}",
    }
    return "\n".join(
        [
            f"# {entry.kind} {entry.version}",
            "",
            f"The effects of GPU types, places and neighbours at this site, adapted from {sources.prior.name}.",
            "",
            f"Fitted {entry.fitted} with seed {entry.seed}. Written by `sadvise fit performance`; do not edit.",
            "",
            "## Fitted on",
            "",
            *_table("jobs", "count", data),
            "",
            "## On later jobs, fitted on the older four fifths",
            "",
            f"Beside {sources.in_use.name}; {'passed' if not fit.verdict.faults else 'refused'}.",
            "",
            *_table("figure", "value", figures_by_name(fit.verdict.figures)),
            "",
            "## Settings",
            "",
            f"- share of the noise of forecasts: {fit.noise_share:.2f}",
            f"- residual, over the noise: {fit.model.residual:.2f}",
            "",
            "## Graph",
            "",
            f"- inputs: {', '.join(f'`{name}`' for name in entry.columns)}",
            f"- largest difference to the fit: {entry.parity.max_error:.2g} over {entry.parity.rows} rows",
            f"- made with {', '.join(f'{name} {number}' for name, number in entry.made_with.items())}",
            "",
        ]
    )


def figures_by_name(figures: Mapping[str, float]) -> dict[str, str]:
    """Return the figures of a gate as their names in the card and their values as text."""
    return {name: f"{figures[key]:.4g}" for key, name in _FIGURES.items() if key in figures}


def _table(left: str, right: str, values: Mapping[str, str]) -> list[str]:
    return [f"| {left} | {right} |", "|---|--:|", *(f"| {name} | {value} |" for name, value in values.items())]
