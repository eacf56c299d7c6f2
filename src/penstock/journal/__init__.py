"""The durable write path: how bytes are laid out, gathered, committed in groups, and found again."""

from penstock.journal.commit import Block, Commit
from penstock.journal.journal import Journal
from penstock.journal.layout import BlockEntry, BlockKind
from penstock.journal.scan import Scan, scan_journal

__all__ = ["Block", "BlockEntry", "BlockKind", "Commit", "Journal", "Scan", "scan_journal"]
