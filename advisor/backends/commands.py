"""The scontrol command lines that apply a change and take it back; one field each, as argv, never a shell.

Each pair was run on the live releases and read back: what a revert leaves behind is what stood before. A requeue has
nothing that takes it back.
"""

from advisor.domain.actions import Action


def apply_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job to the action's after value."""
    return ["scontrol", *(["-M", cluster] if cluster else []), *action.command()]


def revert_argv(action: Action, cluster: str | None = None) -> list[str] | None:
    """Return the command that brings a job back to the action's before value, None where nothing can."""
    inverse = action.inverse()
    return None if inverse is None else apply_argv(inverse, cluster)
