"""Puts single faults into a copy of the code and reports which of them the related tests catch.

    python -m tools.mutants [PACKAGE ...] [--mutants 150] [--seed 0] [--modules PATH ...] [--tests PATH ...]

The packages, their modules and their tests are in packages.toml; faults that no test can catch, with the reason, in
equivalent.toml. Each fault is put into a copy of the checkout, where the tests that run its statement run until one
fails. What was found out is kept beside the copy: a run that was interrupted goes on, and what was caught once is not
run again. Exits with 1 if a package stays below the share of 85 %.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.mutants.checkout import Copy, MutantsError
from tools.mutants.faults import Mutant, sampled

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
FOLDER: Final = Path.home() / ".cache/sadvise/mutants"
LEAST_SHARE: Final = 0.85
# The tests of one mutant take this long together, without it; with it, several times as long.
TESTS_S: Final = 10.0
START_S: Final = 20.0
SLOWER: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageScore:
    """The mutants of a package: how many there are, how many are equivalent, and those that no test caught."""

    package: str
    mutants: int
    equivalent: int
    missed: tuple[Mutant, ...]

    @property
    def caught(self) -> int:
        """Return how many mutants made a test fail."""
        return self.mutants - self.equivalent - len(self.missed)

    @property
    def share(self) -> float:
        """Return the share caught of those that are not equivalent."""
        different = self.mutants - self.equivalent
        return self.caught / different if different else 1.0

    def __str__(self) -> str:
        """Return the row of the table."""
        counts = f"{self.mutants:>9}{self.caught:>8}{self.equivalent:>12}{len(self.missed):>12}"
        return f"{self.package:<10}{counts}{self.share:>8.0%}"


def main() -> int:
    """Judge the packages one by one, and print what was not caught and the table."""
    packages = tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(packages)}; default: all")
    parser.add_argument("--mutants", type=int, default=150, help="of each package, default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--modules", nargs="+", help="only these modules of the packages, as paths")
    parser.add_argument(
        "--tests", nargs="+", help="only these tests, as arguments of pytest; default: those of a package"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="for the copy and what is kept, default: %(default)s"
    )
    args = parser.parse_args()
    if unknown := sorted(set(args.packages) - set(packages)):
        parser.error(f"no package {', '.join(unknown)}; there are {', '.join(packages)}")
    copy = Copy(ROOT, args.folder)
    scores = []
    for name in args.packages or packages:
        modules = [path for path in modules_of(packages[name]) if not args.modules or path in args.modules]
        mutants = sampled(copy.root, modules, most=args.mutants, seed=args.seed)
        try:
            scores.append(judged(copy, name, args.tests or packages[name]["tests"], mutants))
        except MutantsError as err:
            print(f"{name}: {err}", file=sys.stderr)
            return 2
    report(scores)
    return 0 if all(score.share >= LEAST_SHARE for score in scores) else 1


def modules_of(package: Mapping[str, Any]) -> list[str]:
    """Return the modules of a package as paths from the root of the checkout."""
    paths = {path for pattern in package["modules"] for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py")


def judged(copy: Copy, package: str, tests: Iterable[str], mutants: list[Mutant]) -> PackageScore:
    """Run the tests of each mutant that is not listed as equivalent."""
    listed = equivalents()
    related = copy.related(package, list(tests))
    missed = []
    different = [mutant for mutant in mutants if key(mutant) not in listed]
    for count, mutant in enumerate(different, 1):
        chosen = related.tests(mutant, most_s=TESTS_S)
        limit_s = START_S + SLOWER * sum(related.seconds[test] for test in chosen)
        if not copy.is_caught(mutant, chosen, limit_s=limit_s):
            missed.append(mutant)
            print(described(mutant), flush=True)
        if sys.stderr.isatty():
            print(f"\r{package} {count}/{len(different)}", end="\r", file=sys.stderr)
    return PackageScore(
        package=package, mutants=len(mutants), equivalent=len(mutants) - len(different), missed=tuple(missed)
    )


def equivalents() -> frozenset[tuple[str, str, str]]:
    """Return the path and the lines before and after of each mutant that no test can catch."""
    entries = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8")).get("equivalent", [])
    return frozenset((entry["path"], entry["before"], entry["after"]) for entry in entries)


def key(mutant: Mutant) -> tuple[str, str, str]:
    """Return what identifies a mutant in the list of equivalent ones."""
    return mutant.fault.path, mutant.before, mutant.after


def described(mutant: Mutant) -> str:
    """Return where a mutant is and what it changes."""
    return f"{mutant.fault.path}:{mutant.fault.line}\n    - {mutant.before}\n    + {mutant.after}"


def report(scores: Iterable[PackageScore]) -> None:
    """Print the table."""
    print(f"{'package':<10}{'mutants':>9}{'caught':>8}{'equivalent':>12}{'not caught':>12}{'share':>8}")
    for score in scores:
        print(score)


if __name__ == "__main__":
    sys.exit(main())
