"""Writes the goldens again: python -m tests.golden.write."""


def main() -> None:
    """Write every golden, name those that differ from before, and remove those that nothing makes any more."""
    from tests.golden.table import FOLDER, GOLDENS, written

    for name in sorted(written() - GOLDENS.keys()):
        (FOLDER / name).unlink()
        print("removed:", name)
    for name, make in GOLDENS.items():
        path = FOLDER / name
        before = path.read_text(encoding="utf-8") if path.exists() else None
        after = make()
        if after != before:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(after, encoding="utf-8")
            print("new:" if before is None else "differs:", name, flush=True)


if __name__ == "__main__":
    main()
