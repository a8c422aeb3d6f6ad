"""What all tests of the daemon share."""

from collections.abc import Iterator

import pytest

from advisor.daemon.journal_keeper import Keeper
from advisor.journal import SqliteJournal


@pytest.fixture(autouse=True)
def _journals_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the journals of daemons that a test drops as a kill would; Python warns about files left open."""
    keepers: list[Keeper] = []
    opened = Keeper._opened

    def noted(keeper: Keeper) -> SqliteJournal:
        keepers.append(keeper)
        return opened(keeper)

    monkeypatch.setattr(Keeper, "_opened", noted)
    yield
    for keeper in keepers:
        keeper.close()
