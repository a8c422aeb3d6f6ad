"""Writes the goldens again: python -m tests.golden.write."""

import json


def main() -> None:
    """Write every golden, and name those that differ from before."""
    from tests.golden.digests import FOLDER
    from tests.golden.table import GOLDENS

    for name, make in GOLDENS.items():
        path = FOLDER / f"{name}.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        found = make()
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(name, "differ:", [key for key in found if before.get(key) != found[key]])


if __name__ == "__main__":
    main()
