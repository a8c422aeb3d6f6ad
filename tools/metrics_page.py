"""Writes the reference page of the metrics from the table that the daemon exports them by."""

from advisor.metrics.catalogue import METRICS

_PAGE = """\
<!-- Made by `python -m tools.generate_docs`; edit the table in advisor/metrics/catalogue.py instead. -->
# Metrics, health, dashboard, alerts

`sadvise serve` tells metrics and health over HTTP at the place that `metrics.listen` names
([configuration.md](configuration.md)): `127.0.0.1:9341` unless it says otherwise, a Unix socket with
`unix:/run/sadvise/metrics.sock` (mode 0660), nowhere with an empty text. It refuses any address that other machines
could reach. Nothing can be written there, and answers hold no job ids, users or accounts. Whoever has a login on the
host can read a loopback port; a Unix socket only the daemon's group.

    curl http://127.0.0.1:9341/metrics
    curl --unix-socket /run/sadvise/metrics.sock http://localhost/healthz

| path | answer |
|---|---|
| `/metrics` | the metrics below, in Prometheus's text format |
| `/healthz` | JSON: `status` (`starting`, `ok`, `degraded` or `stale`), `last_cycle_age_s`, `mode`, `paused`, \
`breakers`, `reader` of the last good cycle, `fault` (why it is degraded: the last round made no plan, or pyslurm \
failed and text was read); \
status 503 once the last good cycle is longer ago than three intervals |
| any other | 404; methods other than GET and HEAD get 405 |

A Prometheus on the same host:

    scrape_configs:
      - job_name: sadvise
        static_configs:
          - targets: ["127.0.0.1:9341"]

In `monitoring/` lie a dashboard for Grafana (`sadvise.dashboard.json`, made for version 12) and alert rules
(`sadvise.rules.yml`) with their tests:

    promtool check rules monitoring/sadvise.rules.yml
    promtool test rules monitoring/sadvise.rules.test.yml

## Metrics

Counters count from the start of the daemon. A gauge whose value is not known is `NaN`. Label values are words of the
program; the partitions and GPU types are those of the cluster's configuration.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """Write the page."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.sentence} |")
    return _PAGE + "\n".join(rows) + "\n"
