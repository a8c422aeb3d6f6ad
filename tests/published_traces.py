"""A folder laid out like that of the published traces, with a few made-up jobs."""

from pathlib import Path


def write_traces(folder: Path, *, clusters: tuple[str, ...] = ("04",), jobs: int = 12) -> Path:
    """Write ITP clusters whose jobs overlap: every minute one of an hour and more, on 1, 2, 4 or 8 GPUs."""
    itp = folder / "traces" / "ms_itp"
    itp.mkdir(parents=True)
    lines = [f"{row},{1000 + 60 * row},{3600 + 60 * row},{2 ** (row % 4)}" for row in range(jobs)]
    for cluster in clusters:
        text = "\n".join(["job_id,submission_time,duration,num_gpu", *lines])
        (itp / f"cluster{cluster}.csv.gz").write_text(text + "\n", encoding="utf-8")
    return folder


def write_philly(folder: Path, *rows: str) -> Path:
    """Write a table of Philly."""
    philly = folder / "traces" / "philly"
    philly.mkdir(parents=True)
    text = "\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows])
    (philly / "philly.csv.gz").write_text(text + "\n", encoding="utf-8")
    return folder
