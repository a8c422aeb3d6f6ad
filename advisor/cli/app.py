"""Defines the tree of commands."""

from advisor.cli.acknowledge import acknowledge
from advisor.cli.apply import apply
from advisor.cli.check import check
from advisor.cli.compare import compare
from advisor.cli.config import app as config
from advisor.cli.explain import explain
from advisor.cli.fit import app as fit
from advisor.cli.impact import report
from advisor.cli.import_ import import_
from advisor.cli.journal import journal
from advisor.cli.limits import limits
from advisor.cli.models import app as models
from advisor.cli.notify import notify
from advisor.cli.pause import pause, resume
from advisor.cli.recommend import recommend
from advisor.cli.replay import replay
from advisor.cli.revert import revert
from advisor.cli.root import root
from advisor.cli.serve import serve
from advisor.cli.simulate import simulate
from advisor.cli.snapshot import snapshot
from advisor.cli.status import status
from advisor.cli.top import top
from advisor.cli.tune import tune
from advisor.cli.web import web

app = root()
app.command(short_help="What should change, why, and how.")(recommend)
app.command(short_help="Explain why a job is not starting.")(explain)
app.command(short_help="One cycle that changes pending jobs.")(apply)
app.command(short_help="Take changes back.")(revert)
app.command(short_help="The daemon, which is also sadvised.")(serve)
app.command(short_help="Stop the daemon from changing jobs, at once.")(pause)
app.command(short_help="Let the daemon change jobs again.")(resume)
app.command(short_help="Let the daemon go on after a circuit breaker.")(acknowledge)
app.command(short_help="How the daemon is doing, and why nothing happens.")(status)
app.command(short_help="What digests and mails say, and whether they arrive.")(notify)
app.command(short_help="Serve the web view.")(web)
app.command(short_help="The cluster live in a terminal, with keys to act.")(top)
app.command(short_help="Report what the changes achieved, with intervals.")(report)
app.command(short_help="Changes in effect, and what was proposed and done.")(journal)
app.command(short_help="Plan a recorded cycle again.")(replay)
app.command(short_help="Save the state of the cluster to a file.")(snapshot)
app.command(short_help="Check what this site supports, and what each lack costs.")(check)
app.command(short_help="Simulate a trace under policies.")(simulate)
app.command(short_help="Compare policies over traces and seeds.")(compare)
app.command(short_help="Replay a trace under other settings, and weigh gains against losses.")(tune)
app.command(short_help="Shorter time limits for users, and how much sooner jobs would start.")(limits)
app.command("import", short_help="Convert accounting or a public trace into a trace file.")(import_)
app.add_typer(fit, name="fit")
app.add_typer(models, name="models")
app.add_typer(config, name="config")
