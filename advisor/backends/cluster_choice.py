"""Chooses the one cluster that is asked."""

from collections.abc import Mapping

from advisor.errors import OptionsError


def chosen_cluster(cluster: str | None, variables: Mapping[str, str]) -> str | None:
    """Return the one cluster to ask, None for that of this host; raises `ConfigError` for several."""
    named = variables.get("SLURM_CLUSTERS") or None if cluster is None else cluster
    if named is not None and (not named or named.startswith("-") or "," in named or named == "all"):
        raise OptionsError(
            f"{named!r} is not one cluster, and this works on one at a time: name it with -M or in SLURM_CLUSTERS"
        )
    return named
