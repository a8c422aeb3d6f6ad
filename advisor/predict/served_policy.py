"""Serves policies by name: graphs that score options or places, checked like every other model; and a rule."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import FINGERPRINT
from advisor.features.policy import Options, Policy, Scores
from advisor.features.steps import PriceRule
from advisor.predict.library import (
    PERFORMANCE,
    Held,
    Library,
    check_fingerprint,
    checked_content,
    performance_version,
)
from advisor.predict.manifest import GRAPH, PARAMETERS, POLICY
from advisor.predict.manifest import digest as digest_of
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import PerformanceModel

# A policy that takes longer for one decision is late, and the rules decide.
DEADLINE_S: Final = 1.0
OPTIONS, SCORES = "options", "scores"
# Which lever's options a graph scores; that of a graph that does not say is GPU_COUNT.
LEVER: Final = "sadvise_lever"
# Between the name and the version of a policy.
VERSION_SIGN: Final = "@"
# In place of a version: the last one that the site fitted, that in use where it fitted none.
NEWEST: Final = "newest"
# Rules that are served under a name as well; they have no versions.
RULES: Final[Mapping[str, Policy]] = {PriceRule.name: PriceRule()}
# A policy that takes longer to point to one server is late, and the rule chooses.
PLACE_DEADLINE_S: Final = 0.25
OBSERVATION: Final = "sadvise_graph"
INPUTS: Final = frozenset({"slots", "servers", "member", "leaves", "choice", "gang", "own", "others"})
# What a performance model says of each server, beside the above.
OUTLOOK: Final = "outlook"
# Names the observation of policies that look at it.
OUTLOOK_FINGERPRINT: Final = hashlib.sha256(json.dumps((FINGERPRINT, SEEN_COLUMNS)).encode()).hexdigest()
# Without these a graph cannot point to a server.
_NEEDED: Final = frozenset({"choice", "gang"})


class ServedPolicy:
    """The policy of a graph that takes `options`, `(n_options, n_columns)`, and gives `scores`."""

    def __init__(self, graph: TensorGraph, *, name: str, columns: tuple[str, ...], digest: str = "") -> None:
        """Take a checked graph; raises `ModelError` where it takes anything else or gives no scores."""
        if SCORES not in graph.outputs or graph.inputs.keys() != {OPTIONS}:
            raise ModelError(f"policy {name}: it is not a graph that scores options")
        if graph.metadata.get(LEVER, Lever.GPU_COUNT) not in set(Lever):
            raise ModelError(f"policy {name}: it scores options of {graph.metadata[LEVER]!a}, which is no lever")
        self.name = name
        self.digest = digest
        self.levers = frozenset({Lever(graph.metadata.get(LEVER, Lever.GPU_COUNT))})
        self._graph = graph
        self._columns = columns

    def act(self, options: Options) -> Scores:
        """Return a score for each option; raises `ModelError` where the graph cannot, or takes too long."""
        if tuple(options.columns) != self._columns:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        scores: Scores = self._graph.run({OPTIONS: options.features()}, limit_s=DEADLINE_S)[SCORES].astype(np.float64)
        return scores


class OpenedPolicy:
    """A policy by its name, or `NAME@VERSION` for a version that need not be in use.

    Without a version it is the one in use at each call, so that `sadvise models use` counts from the next cycle on, and
    with `NAME@newest` the last one that the site fitted, so that the version of each night follows that before.
    """

    def __init__(self, library: Library, name: str) -> None:
        """Check and open it; raises `ModelError` if there is none or it is invalid."""
        self._library = library
        self._name = name
        self._digest = ""
        self._policy: Policy | None = None
        self._fault = ""
        self()

    def __call__(self) -> Policy:
        """Return the policy, opened again if another version is in use since; raises `ModelError`."""
        if self._name in RULES:
            return RULES[self._name]
        held = held_policy(self._library, self._name)
        digest = f"{held.entry.digests[GRAPH]} {held.entry.digests[PARAMETERS]}"
        if digest != self._digest:
            # What is refused is not tried in every cycle.
            self._digest, self._policy, self._fault = digest, None, ""
            try:
                self._policy = served(held, self._library)
            except ModelError as err:
                self._fault = str(err)
        if self._policy is None:
            raise ModelError(self._fault)
        return self._policy


def open_policy(library: Library, name: str) -> Policy:
    """Check and open a policy by `NAME` or `NAME@VERSION`; raises `ModelError` if there is none or it is invalid."""
    return RULES[name] if name in RULES else served(held_policy(library, name), library)


def held_policy(library: Library, name: str) -> Held:
    """Return the version of a policy that a library holds: by `NAME` that in use, `NAME@VERSION` or `NAME@newest`."""
    kind, has_version, version = name.partition(VERSION_SIGN)
    there = policies(library)
    if kind not in there:
        raise ModelError(f"there is no policy {kind!a}: there are {', '.join(there) or 'none'}")
    if kind in RULES:
        raise ModelError(f"policy {kind} is a rule, which has no versions: give {kind} alone")
    if version == NEWEST:
        return library.newest(f"{POLICY}{kind}")
    return library.find(f"{POLICY}{kind}", version if has_version else None)


def served(held: Held, library: Library) -> Policy:
    """Check and open a version of a policy, of options or of places; raises `ModelError`.

    The parameters of a policy can name a version of the performance model, which it then looks at; `library` holds it.
    """
    content = checked_content(held)
    graph = TensorGraph(content[GRAPH], name=held.name)
    check_fingerprint(graph.fingerprint, held)
    name, columns = held.entry.kind.removeprefix(POLICY), held.entry.columns
    digest = held.entry.digests[GRAPH]
    if not points_to_servers(graph):
        return ServedPolicy(graph, name=name, columns=columns, digest=digest)
    version = performance_version(content[PARAMETERS], held)
    models = None if version is None else PerformanceModel.opened(library.find(PERFORMANCE, version)).known_models()
    if version is not None:
        # Two versions can have the same graph, and differ in what they know of the site.
        digest = digest_with_parameters(content)
    return ServedPlaces(graph, name=name, columns=columns, digest=digest, models=models)


def digest_with_parameters(content: Mapping[str, bytes]) -> str:
    """Return the digest by which records name a policy that looks at a performance model."""
    return digest_of(content[GRAPH] + content[PARAMETERS])


def policies(library: Library) -> tuple[str, ...]:
    """Return the names of the rules, and of the policies that a library holds; raises `ModelError`."""
    kinds = {held.entry.kind for held in library.held()}
    return tuple(sorted({*RULES, *(kind.removeprefix(POLICY) for kind in kinds if kind.startswith(POLICY))}))


def points_to_servers(graph: TensorGraph) -> bool:
    """Return whether the inputs of a graph are those of a policy for places."""
    return _NEEDED <= graph.inputs.keys() <= INPUTS | {OUTLOOK}


class ServedPlaces:
    """The policy of a graph that scores each server, each agent to forward to, and waiting, `(n + agents + 1,)`.

    With `models` it looks at what they say of the site, and not at the models in use.
    """

    levers = frozenset({Lever.NODE_LIST})

    def __init__(
        self,
        graph: TensorGraph,
        *,
        name: str,
        columns: tuple[str, ...],
        digest: str = "",
        models: KnownModels | None = None,
    ) -> None:
        """Take a checked graph; raises `ModelError` where it was made for another observation."""
        if not points_to_servers(graph) or SCORES not in graph.outputs:
            raise ModelError(f"policy {name}: it is not a graph that points to servers")
        if graph.metadata.get(OBSERVATION) != (OUTLOOK_FINGERPRINT if OUTLOOK in graph.inputs else FINGERPRINT):
            raise ModelError(f"policy {name}: it was trained on another observation: train it again, or roll back")
        if OUTLOOK in graph.inputs and (models is None or models.speeds is None):
            raise ModelError(f"policy {name}: it looks at a performance model, and none is named in its parameters")
        self.name = name
        self.digest = digest
        self.models = models
        self._graph = graph
        self._columns = columns

    def act(self, options: Options) -> Scores:
        """Return a score for each option, above 0 where it is better than to wait; raises `ModelError`."""
        is_shown = self._graph.inputs.keys() <= options.tensors.keys() and set(self._columns) <= options.columns.keys()
        if options.place is None or not is_shown:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        tensors = {name: options.tensors[name] for name in self._graph.inputs}
        given: NDArray[np.float64] = self._graph.run(tensors, limit_s=PLACE_DEADLINE_S)[SCORES].astype(np.float64)
        scores = given[options.place]
        # Where one has to be chosen, the scores only order the options.
        return np.asarray(scores - (scores.min() - 1.0 if options.must_choose else given[-1]))
