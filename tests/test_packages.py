"""The packages: what they hold, and that they install, start, upgrade and go away on a machine with systemd."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.built_packages import BUILT_TIME
from tests.throwaway_machine import ThrowawayMachine
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster

ROOT = Path(__file__).parent.parent
SLURM = "/srv/slurm"
CHECKOUT = "/srv/sadvise"
# Not where it is on the host, which can be hidden there.
ENVIRONMENT = "/srv/environment"
# A daemon that applies at once, as root, since this Slurm has no accounting to make another user an Operator in.
APPLYING = """
mkdir -p /etc/systemd/system/sadvised.service.d
printf '[Service]\\nUser=root\\n' >/etc/systemd/system/sadvised.service.d/root.conf
cat >/etc/sadvise/conf.d/apply.toml <<END
[mode]
default = "apply"
[guard]
min_job_age_s = 0
probation_jobs = 0
[daemon]
interval_s = 2
jitter_s = 0
END
systemctl daemon-reload
systemctl start sadvised.service
"""
APPLYING_NO_MORE = """
systemctl stop sadvised.service
rm -r /etc/systemd/system/sadvised.service.d /etc/sadvise/conf.d/apply.toml
find /var/lib/sadvise /run/sadvise -type f -delete
systemctl daemon-reload
"""
COPIED_BY_ROLE = ("Create the folder for package files", "Copy package files")
# What an Enterprise Linux has, in the words of its packages.
PROVIDING = """
cd /tmp
cat >base.spec <<END
Name: base
Version: 1
Release: 1
Summary: What the packages ask for
License: MIT
BuildArch: noarch
Provides: /bin/sh /usr/bin/$(basename "$(readlink -f /usr/bin/python3)") glibc = 2.34 libstdc++ shadow-utils
%description
What the packages ask for.
%files
END
rpmbuild -bb --quiet --define "_rpmdir /tmp" --define "_rpmfilename base.rpm" base.spec
rpm --install base.rpm
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("packaged Python", "dpkg-deb", "rpmbuild", "rpm", "dnf"),
    # The first test builds both packages, then boots a machine.
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def machine(
    packages: Path, tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], Path]
) -> Iterator[ThrowawayMachine]:
    """A machine with systemd that has the packages in /packages and a Slurm cluster to talk to."""
    for name in ("machines", "slurm 22.05"):
        need(name)
    with LiveCluster("22.05", node_count=2, extra_lines=PRIORITY_LINES) as cluster:
        inner = tmp_path_factory.mktemp("slurm")
        conf = (cluster.folder / "slurm.conf").read_text().replace(str(cluster.folder), SLURM)
        (inner / "slurm.conf").write_text(conf)
        inner.chmod(0o755)
        binds = {packages: "/packages", cluster.folder: SLURM, inner: "/etc/slurm", ROOT: CHECKOUT}
        # Ansible runs on the machine itself, from the environment of the tests.
        binds[Path(sys.prefix)] = ENVIRONMENT
        with ThrowawayMachine(tmp_path_factory.mktemp("machine"), binds) as booted:
            yield booted


def output(*argv: str) -> str:
    """Return what a program prints."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def deb(packages: Path, name: str = "sadvise") -> str:
    """Name a Debian package."""
    return str(next(packages.glob(f"{name}_*.deb")))


def rpm(packages: Path, name: str = "sadvise") -> str:
    """Name an RPM package."""
    return str(next(packages.glob(f"{name}-[0-9]*.rpm")))


def deb_files(packages: Path, name: str = "sadvise") -> dict[str, str]:
    """Map what a .deb holds to mode, owner, size and time."""
    found = {}
    for line in output("dpkg-deb", "--contents", deb(packages, name)).splitlines():
        *about, name = line.split(None, 5)
        found[name.split(" -> ")[0].removeprefix(".").rstrip("/")] = " ".join(about)
    return found


def state(machine: ThrowawayMachine, unit: str = "sadvised.service") -> tuple[str, str]:
    """Return whether a service is enabled and whether it runs."""
    return (
        machine.ask("systemctl", "is-enabled", unit).stdout.strip(),
        machine.ask("systemctl", "is-active", unit).stdout.strip(),
    )


def shown(machine: ThrowawayMachine, name: str) -> str:
    """Return a property of the service."""
    return machine.run("systemctl", "show", "--property", name, "--value", "sadvised.service").strip()


def install_deb(machine: ThrowawayMachine) -> None:
    """Install or upgrade to the package."""
    machine.run("sh", "-c", "dpkg --install /packages/sadvise_*.deb")


def play(machine: ThrowawayMachine, package: str, settings: dict[str, object], **variables: object) -> str:
    """Run the role of Ansible on the machine itself and return what it printed."""
    # The machine shares the ports of its host, where another daemon can serve its metrics.
    tables = {
        "planning": settings,
        "metrics": {"listen": "unix:/run/sadvise/metrics.sock"},
        "web": {"listen": "unix:/run/sadvise-web/web.sock"},
    }
    role = {"role": "sadvise", "sadvise_packages": [package], "sadvise_settings": tables, **variables}
    playbook = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [role]}
    # Ansible does not expect dnf on Debian.
    playbook["module_defaults"] = {"ansible.builtin.dnf": {"use_backend": "dnf4"}}
    machine.run("sh", "-c", 'printf %s "$0" >/root/play.yml', json.dumps([playbook]))
    environment = ["env", "HOME=/root", f"ANSIBLE_ROLES_PATH={CHECKOUT}/ansible/roles", "ANSIBLE_PIPELINING=1"]
    answer = machine.ask(
        *environment,
        f"{ENVIRONMENT}/bin/python",
        "-m",
        "ansible",
        "playbook",
        "--inventory=localhost,",
        "/root/play.yml",
    )
    return f"{answer.stdout}{answer.stderr}"


def changed(said: str) -> list[str]:
    """Return the tasks that changed something in a run that succeeded."""
    assert re.search(r"unreachable=0 +failed=0", said), said
    parts = re.split(r"^(?:TASK|RUNNING HANDLER) \[sadvise : (.*)\] \**$", said, flags=re.MULTILINE)
    tasks = zip(parts[1::2], parts[2::2], strict=True)
    return [name for name, printed in tasks if re.search("^changed:", printed, re.MULTILINE)]


def as_user(machine: ThrowawayMachine, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program as an ordinary user."""
    return machine.ask("runuser", "-u", "nobody", "--", "env", "HOME=/nonexistent", *argv)


@pytest.mark.parametrize("name", ["sadvise", "sadvise-fit"])
def test_packages_ask_for_the_python_whose_libraries_they_hold(packages: Path, name: str) -> None:
    needs = output("dpkg-deb", "--field", deb(packages, name), "Depends")
    rpm_needs = output("rpm", "-qp", "--requires", rpm(packages, name))
    held = {match[1] for file in deb_files(packages, name) if (match := re.search(r"\.cpython-3(\d+)-", file))}

    assert len(held) == 1
    assert f"python3.{held.copy().pop()}," in needs
    assert f"/usr/bin/python3.{held.copy().pop()}\n" in rpm_needs


@pytest.mark.parametrize("name", ["sadvise", "sadvise-fit"])
def test_both_formats_hold_the_same_files_at_one_time_owned_by_root(packages: Path, name: str) -> None:
    in_deb = deb_files(packages, name)
    in_rpm = set(output("rpm", "-qlp", rpm(packages, name)).splitlines())
    times = set(output("rpm", "-qp", "--queryformat", "[%{FILEMTIMES}\n]", rpm(packages, name)).split())
    files = {file for file, about in in_deb.items() if not about.startswith("d")}

    # Two places of one file: zsh looks elsewhere on systems of rpm.
    assert {file.replace("/zsh/vendor-completions/", "/zsh/site-functions/") for file in files} <= in_rpm
    assert {about.split()[1] for about in in_deb.values()} == {"root/root"}
    assert not any(about[8] == "w" for about in in_deb.values() if not about.startswith("l"))
    assert {tuple(about.split()[3:5]) for about in in_deb.values()} == {("2023-11-14", "22:13")}
    assert times == {str(BUILT_TIME)}


def test_package_holds_the_program_and_what_stands_around_it(packages: Path) -> None:
    assert {
        "/opt/sadvise/bin/sadvised",
        "/etc/sadvise/sadvise.toml",
        "/usr/share/sadvise/slurm/job_submit.lua",
        "/usr/share/man/man1/sadvise-recommend.1.gz",
        "/usr/share/man/man5/sadvise.toml.5.gz",
        "/usr/share/man/man8/sadvised.8.gz",
        "/usr/share/bash-completion/completions/sadvise",
        "/usr/share/zsh/vendor-completions/_sadvise",
        "/usr/share/fish/vendor_completions.d/sadvise.fish",
        "/usr/share/sadvise/monitoring/sadvise.dashboard.json",
        "/usr/share/sadvise/monitoring/sadvise.rules.yml",
    } <= set(deb_files(packages))


def test_packages_share_no_file(packages: Path) -> None:
    program, extras = (
        {file for file, about in deb_files(packages, name).items() if not about.startswith("d")}
        for name in ("sadvise", "sadvise-fit")
    )

    assert program & extras == set()
    folder = re.compile(r"/opt/sadvise/lib/python3\.\d+/site-packages/(\w+)/")
    assert {"sklearn", "submitit"} <= {match[1] for file in extras if (match := folder.match(file))}
    assert {"numpy", "joblib", "advisor"} <= {match[1] for file in program if (match := folder.match(file))}


def test_every_page_is_in_the_package_and_every_link_of_it_leads_somewhere(packages: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", deb(packages), str(tmp_path)], check=True)
    folder = tmp_path / "usr/share/doc/sadvise"
    pages = sorted(folder.rglob("*.md"))

    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    in_package, in_checkout = (
        {str(page.relative_to(place)) for page in (place / "docs").rglob("*.md")} for place in (folder, ROOT)
    )

    assert in_package == in_checkout
    assert len(links) > 50
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def test_packages_ask_for_the_c_library_of_the_simulator(packages: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", deb(packages), str(tmp_path)], check=True)
    [engine] = tmp_path.rglob("engine-*.so")
    needed = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", engine.read_bytes()))
    needs = output("dpkg-deb", "--field", deb(packages), "Depends")
    rpm_needs = output("rpm", "-qp", "--requires", rpm(packages))

    for relation in (needs, rpm_needs):
        match = re.search(r"(?:libc6 \(|glibc )>= 2\.(\d+)", relation)
        assert match is not None
        assert int(match[1]) >= needed


def test_package_names_no_place_of_the_build_and_every_dependency_with_its_digest(
    packages: Path, tmp_path: Path
) -> None:
    for name in ("sadvise", "sadvise-fit"):
        subprocess.run(["dpkg-deb", "--extract", deb(packages, name), str(tmp_path)], check=True)

    listed = (tmp_path / "usr/share/doc/sadvise/dependencies.txt").read_text().splitlines()
    small = [
        path for path in tmp_path.rglob("*") if path.suffix in {".cfg", ".pth", ".json", ".pyc"} and path.is_file()
    ]
    small += [path for path in (tmp_path / "opt/sadvise/bin").iterdir() if not path.is_symlink()]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in listed)
    assert {"numpy", "onnxruntime", "pydantic"} <= {line.partition("==")[0] for line in listed}
    records = [path.read_text() for path in tmp_path.rglob("*.dist-info/RECORD")]
    assert len(records) > len(listed)
    # Their digests would differ from build to build.
    assert not any(re.search(r"^\.\./\.\./\.\./bin/|/direct_url\.json,", record, re.MULTILINE) for record in records)
    assert [str(path) for path in small if b"sadvise-packages-" in path.read_bytes()] == []


def test_role_installs_the_package_which_starts_nothing(machine: ThrowawayMachine, packages: Path) -> None:
    package = f"/packages/{Path(deb(packages)).name}"
    idle = {"sadvise_service_enabled": False, "sadvise_service_state": "stopped"}

    first = changed(play(machine, package, {"depth": 150}, **idle))
    wrong = play(machine, package, {"dept": 150}, **idle)

    # Nothing had to be stopped or disabled.
    assert first == [*COPIED_BY_ROLE, "Install .deb files", "Write the settings"]
    assert "planning.dept is not known: did you mean depth?" in wrong
    assert "changed: [localhost]" not in wrong
    assert re.search(r"depth .*150 .*50-ansible.toml", machine.run("sadvise", "config", "show"))
    assert state(machine) == state(machine, "sadvise-web.service") == ("disabled", "inactive")
    assert machine.run("sadvise", "--version").startswith("sadvise ")
    assert machine.run("stat", "-c", "%U %a", "/var/lib/sadvise").split() == ["sadvise", "711"]
    assert machine.run("getent", "passwd", "sadvise").strip().endswith("/nologin")
    assert machine.run("dpkg", "--verify", "sadvise") == ""
    assert machine.run("systemd-analyze", "verify", "/usr/lib/systemd/system/sadvised.service") == ""


def test_service_runs_under_its_restrictions_and_reads_slurm(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "start", "sadvised.service")
    deadline = time.monotonic() + 30.0
    while "recommended" not in shown(machine, "StatusText") and time.monotonic() < deadline:
        time.sleep(0.2)

    process = machine.run("cat", f"/proc/{shown(machine, 'MainPID')}/status")
    said = shown(machine, "StatusText")
    assert state(machine) == ("disabled", "active")
    assert re.search(r"^CapBnd:\t0+$", process, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", process, re.MULTILINE)
    assert re.search(r"^Seccomp:\t2$", process, re.MULTILINE)
    log = machine.run("journalctl", "--no-pager", "--unit", "sadvised.service")
    assert "recommended" in said, said + log
    assert "rror" not in log
    assert "arning" not in log
    # The socket that shows users their leases.
    assert machine.run("stat", "-c", "%a", "/run/sadvise/leases.sock").strip() == "666"
    # Nothing but the journal and its locks: no library keeps files of its own here.
    assert {name.partition(".")[0] for name in machine.run("ls", "-A", "/var/lib/sadvise").split()} == {"journal"}


@pytest.mark.parametrize(
    "command",
    [("recommend", "--demo"), ("explain", "--demo", "12"), ("recommend",), ("recommend", "--json"), ("models", "list")],
    ids=" ".join,
)
def test_ordinary_user_gets_what_root_gets(machine: ThrowawayMachine, command: tuple[str, ...]) -> None:
    of_root, of_user = machine.ask("sadvise", *command), as_user(machine, "sadvise", *command)

    assert (of_user.returncode, of_user.stderr) == (of_root.returncode, of_root.stderr) == (0, "")
    moving = re.compile(r'"taken_at": ?[\d.]+|\d\d:\d\d:\d\d')
    assert moving.sub("", of_user.stdout) == moving.sub("", of_root.stdout)
    assert "refused" not in of_user.stdout


def test_ordinary_user_sees_leases_and_not_the_journal(machine: ThrowawayMachine) -> None:
    leases = as_user(machine, "sadvise", "journal")
    audit = as_user(machine, "sadvise", "journal", "audit")

    assert (leases.returncode, leases.stdout) == (0, "nothing of ours is out\n")
    assert audit.returncode == 1
    assert audit.stderr.startswith("sadvise: error: /var/lib/sadvise/journal.sqlite is closed to this user: ")
    assert as_user(machine, "ls", "/var/lib/sadvise").returncode != 0


def test_what_is_missing_is_named_as_the_package_that_holds_it(machine: ThrowawayMachine) -> None:
    fitted = machine.ask("sadvise", "fit", "runtime", "--from", "/dev/null")

    assert "fitting needs it: apt-get install ./sadvise-fit_*.deb" in fitted.stderr
    sources = "/opt/sadvise/lib/python3.11/site-packages/advisor"
    naming_pip = machine.run("grep", "-rlE", "--include=*.py", "pip (install|3)", sources)
    # The second says how to compile the engine of the simulator, which the packages hold compiled.
    assert sorted(naming_pip.split()) == [f"{sources}/backends/installation.py", f"{sources}/sim/engine/build.py"]


def test_compare_runs_with_its_defaults(machine: ThrowawayMachine) -> None:
    trace = "/opt/sadvise/lib/python3.11/site-packages/advisor/demo/trace.csv"

    compared = as_user(machine, "sadvise", "compare", trace, "--cluster", "nodes=8,gpus=8,leaf=4", "--jobs", "40")

    assert compared.returncode == 0, compared.stderr
    assert "runs    2 in all" in compared.stdout


def test_fit_package_completes_the_program_and_goes_away_again(machine: ThrowawayMachine) -> None:
    machine.run("sh", "-c", "dpkg --install /packages/sadvise-fit_*.deb")
    fitted = machine.ask("sadvise", "fit", "runtime", "--from", "/dev/null")
    machine.run("/opt/sadvise/bin/python3", "-I", "-c", "import skl2onnx, submitit")
    verified = machine.run("dpkg", "--verify", "sadvise", "sadvise-fit")
    machine.run("dpkg", "--remove", "sadvise-fit")

    assert "is not installed" not in fitted.stderr
    assert "/dev/null" in fitted.stderr
    assert verified == ""
    assert machine.run("dpkg", "--verify", "sadvise") == ""


def test_model_that_the_service_publishes_is_read_by_every_user(machine: ThrowawayMachine) -> None:
    copied = (
        "import sys; from pathlib import Path; from advisor.predict.library import shipped_folder; "
        "from advisor.predict.manifest import read_file, read_manifest, write_file, write_manifest; "
        "site, shipped = Path('/var/lib/sadvise/models'), shipped_folder(); "
        "[write_file(site / path.relative_to(shipped), read_file(path, 1 << 26)) for path in shipped.rglob('*.*') "
        "if path.is_file()]; write_manifest(site, read_manifest(shipped))"
    )
    machine.run("runuser", "-u", "sadvise", "--", "sh", "-c", f'umask 077; /opt/sadvise/bin/python3 -I -c "{copied}"')

    recommended = as_user(machine, "sadvise", "recommend", "--demo")
    verified = as_user(machine, "sadvise", "models", "verify")

    machine.run("rm", "-r", "/var/lib/sadvise/models")
    assert "refused" not in recommended.stdout
    assert "/var/lib/sadvise/models" in verified.stdout
    assert verified.returncode == 0, verified.stdout


def test_service_that_runs_is_upgraded_and_runs_again(machine: ThrowawayMachine) -> None:
    before = shown(machine, "MainPID")

    install_deb(machine)

    assert state(machine) == ("disabled", "active")
    assert shown(machine, "MainPID") != before


def test_broken_configuration_keeps_the_service_from_starting_and_says_why(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "stop", "sadvised.service")
    machine.run("sh", "-c", "echo '[plannning]' >/etc/sadvise/conf.d/broken.toml")

    started = machine.ask("systemctl", "start", "sadvised.service")

    log = machine.run("journalctl", "--no-pager", "--unit", "sadvised.service")
    machine.run("rm", "/etc/sadvise/conf.d/broken.toml")
    machine.run("systemctl", "stop", "sadvised.service")
    machine.ask("systemctl", "reset-failed", "sadvised.service")
    assert started.returncode != 0
    assert "did you mean planning?" in log


def submit(machine: ThrowawayMachine, user: str, *request: str) -> int:
    """Submit a job as a user."""
    argv = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap=sleep 3600", *request)
    return int(machine.run("runuser", "-u", user, "--", *argv))


def test_user_sees_why_the_own_job_has_a_nice_and_gets_the_own_value_back(machine: ThrowawayMachine) -> None:
    for node in ("n01", "n02"):
        submit(machine, "root", "--time=10:00:00", "--gres=gpu:8", f"--nodelist={node}")
    submit(machine, "root", "--time=2-00:00:00", "--nodes=2", "--gres=gpu:8")
    own = submit(machine, "games", "--time=01:00:00", "--gres=gpu:2", "--nice=3")
    machine.run("sh", "-c", APPLYING)
    deadline = time.monotonic() + 60.0
    while f"{own}|nice|out|3|" not in as_user(machine, "sadvise", "journal", "-P").stdout:
        assert time.monotonic() < deadline, machine.run("journalctl", "--no-pager", "--unit", "sadvised.service")
        time.sleep(0.5)

    explained = as_user(machine, "sadvise", "explain", str(own)).stdout
    of_root = machine.run("sadvise", "recommend", "-P")
    of_user = as_user(machine, "sadvise", "recommend", "-P").stdout
    held = machine.run("squeue", "-h", "-j", str(own), "-O", "Nice").strip()
    machine.run("sadvise", "revert", str(own))
    restored = machine.run("squeue", "-h", "-j", str(own), "-O", "Nice").strip()
    machine.run("sh", "-c", APPLYING_NO_MORE)
    for user in ("root", "games"):
        machine.run("scancel", f"--user={user}")

    line = next(line for line in explained.splitlines() if line.startswith("changed"))
    assert re.search(rf"nice 3 -> nice {held}: It needs .*; reverted at \d", line)
    assert int(held) < 3
    assert restored == "3"
    assert of_user == of_root


def test_service_that_does_not_run_is_upgraded_and_stays_so(machine: ThrowawayMachine) -> None:
    install_deb(machine)

    assert state(machine) == ("disabled", "inactive")


def test_removal_stops_the_service_and_keeps_its_journal_and_a_purge_does_not(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "enable", "--now", "sadvised.service")

    machine.run("dpkg", "--remove", "sadvise")
    left = machine.run("ls", "/var/lib/sadvise", "/etc/sadvise")
    machine.run("dpkg", "--purge", "sadvise")

    assert state(machine)[1] == "inactive"
    assert "journal.sqlite" in left
    assert "sadvise.toml" in left
    for path in (
        "/opt/sadvise",
        "/var/lib/sadvise",
        "/etc/sadvise",
        "/etc/systemd/system/multi-user.target.wants/sadvised.service",
    ):
        assert machine.ask("test", "-e", path).returncode == 1


def test_role_installs_the_rpm_by_its_requirements_and_starts_the_service(
    machine: ThrowawayMachine, packages: Path
) -> None:
    package = f"/packages/{Path(rpm(packages)).name}"
    # The machine's own packages are Debian's, so rpm knows of none that are asked for.
    unmet = machine.ask("dnf", "install", "--assumeyes", package)
    machine.run("sh", "-c", PROVIDING)

    web = {"sadvise_web_enabled": True, "sadvise_web_state": "started"}
    first, again = (changed(play(machine, package, {"depth": 150}, **web)) for _ in range(2))
    running, web_runs = state(machine), state(machine, "sadvise-web.service")
    web_user = machine.run("systemctl", "show", "--property", "User", "--value", "sadvise-web.service").strip()
    version = machine.run("sadvise", "--version")
    verified = machine.run("rpm", "--verify", "sadvise")
    machine.run("dnf", "remove", "--assumeyes", "--noautoremove", "sadvise")

    assert "nothing provides /usr/bin/python3." in unmet.stderr
    assert first[-7:] == [
        "Copy package files",
        "Install .rpm files",
        "Write the settings",
        "Reload sadvised",
        "Restart sadvise-web",
        "Enable and start the daemon",
        "Enable and start the web view",
    ]
    assert again == []
    assert running == web_runs == ("enabled", "active")
    assert web_user == "sadvise-web"
    assert version.startswith("sadvise ")
    assert verified == ""
    assert state(machine)[1] == "inactive"
    assert machine.ask("test", "-e", "/opt/sadvise").returncode == 1
    assert machine.ask("test", "-e", "/var/lib/sadvise").returncode == 0
