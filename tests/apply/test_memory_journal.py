"""The journal in memory: it keeps to the contract of all journals, and starts with what another one holds."""

from advisor.apply.memory_journal import MemoryJournal
from tests.journal.contract import check


def test_journal_in_memory_keeps_to_the_contract() -> None:
    check(MemoryJournal())
