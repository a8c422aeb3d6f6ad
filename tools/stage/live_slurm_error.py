"""The one error of the test clusters."""


class LiveSlurmError(RuntimeError):
    """A test cluster could not be built, started or asked; the text is one line for a person."""
