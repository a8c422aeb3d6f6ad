"""Words what is known of a job, from a cycle that was planned already; asks Slurm nothing."""

from advisor.config import Config
from advisor.watch.cluster_view import ClusterView
from advisor.watch.job_answer import job_answer


def job_lines(view: ClusterView, config: Config, job_id: int) -> list[tuple[str, str]]:
    """Return labels and sentences about a job of a view; none if it is not in the queue any more."""
    snapshot = view.planned.record.snapshot
    job = snapshot.jobs_by_id.get(job_id)
    if job is None:
        return []
    groups = job_answer(job, snapshot, config, view.planned).groups(None, snapshot.source)
    return [line for group in groups for line in group]
