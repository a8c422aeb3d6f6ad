"""Words what the weekly `sadvise tune` of a daemon advises."""

from advisor.domain.tune_verdict import TuneVerdict
from advisor.domain.units import plural
from advisor.view.wording import signed


def tune_words(verdict: TuneVerdict) -> str:
    """Return what is advised, how much it gains against the settings in force, and at whose price."""
    tried = f"tried on the last {plural(verdict.jobs, 'GPU job')}"
    if not verdict.preset:
        return f"{tried}, no preset lowers the mean JCT clearly; in force is {verdict.in_force}"
    if not verdict.is_better:
        return f"{tried}, no preset is better than {verdict.in_force}, which is in force"
    change = f"{signed(verdict.percent)} % ({signed(verdict.low)} to {signed(verdict.high)})"
    return (
        f"{tried}, preset {verdict.preset} ({verdict.setting}) would change the mean JCT by {change} "
        f"against {verdict.in_force}, which is in force; "
        f"{verdict.worse} of {plural(verdict.users, 'user')} would be worse than under plain Slurm, "
        f"{verdict.beyond_chance} beyond chance, now {verdict.beyond_chance_now}. To set: {verdict.lines}"
    )
