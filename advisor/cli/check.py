"""`sadvise check`: what this site offers, and what each lack costs."""

from dataclasses import asdict

from advisor.cli.options import Cluster, ConfigFile, Demo, Json, NoHeader, Parsable, SnapshotFile, Source, Timeout


def check(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
) -> None:
    """Check the Slurm release, topology, parameters, privileges and readers, with what it costs to lack each.

    Asks slurmctld a little more than a snapshot does; run it by hand, not in a loop.
    """
    from advisor.cli.reading import Reading
    from advisor.cli.render import print_json, print_rows, print_table
    from advisor.cli.report import meta
    from advisor.planning.site_checks import site_checks

    reading = Reading(snapshot=snapshot, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config)
    settings = reading.load_config()
    opened = reading.open(settings)
    seen = opened.snapshot()
    checks = list(site_checks(seen, settings.planning))
    if not demo and snapshot is None:
        from advisor.backends.probe import probes
        from advisor.backends.process import SlurmCommands

        timeout_s = reading.timeout_of(settings)
        checks = [*probes(seen, SlurmCommands(timeout_s=timeout_s, cluster=cluster), timeout_s=timeout_s), *checks]
    header = ["check", "status", "finding", "cost of lacking it"]
    rows = [[each.name, str(each.status), each.text, each.cost] for each in checks]
    if json:
        print_json({"meta": meta(seen, "sadvise.check/1", opened.name), "checks": [asdict(each) for each in checks]})
    elif parsable:
        print_rows(header, rows, as_parsable=True, noheader=noheader)
    else:
        print_table(header, rows, noheader=noheader)
