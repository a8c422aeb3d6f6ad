"""Reads a live cluster and runs commands of sadvise in this process, at a tenth of the cost of one of their own."""

import io
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout

import pytest

from advisor.cli.main import main
from advisor.domain.snapshot import Snapshot
from tests.cli.conftest import Outcome
from tools.stage import LiveCluster
from tools.stage.watch import snapshot_of, talking_to


def taken(live: LiveCluster, reader: str = "auto") -> Snapshot:
    """Take a snapshot as `sadvise snapshot` does, with one of the readers."""
    return snapshot_of(live, reader)


def sadvise_on(live: LiveCluster, *arguments: str, settings: Mapping[str, str] | None = None) -> Outcome:
    """Run `sadvise` as an administrator of the cluster would, with `settings` in its environment."""
    out, err = io.StringIO(), io.StringIO()
    with talking_to(live), pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        for name, value in (settings or {}).items():
            patched.setenv(name, value)
        patched.setattr(sys, "argv", ["sadvise", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return Outcome(exit_code=int(ended.value.code or 0), out=out.getvalue(), err=err.getvalue())
