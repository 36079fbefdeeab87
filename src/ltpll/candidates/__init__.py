"""Candidates: which labels each example may have, and the one parser that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ltpll.candidates.storage import Candidates as Candidates

__all__ = ["Candidates"]


def __getattr__(name: str) -> Any:
    """Import the class on first use: reading cells does not need torch."""
    if name != "Candidates":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ltpll.candidates.storage import Candidates

    return Candidates
