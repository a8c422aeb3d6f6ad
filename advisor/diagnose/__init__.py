"""Why a job waits, where it stands in the queue, and what a site lacks."""
