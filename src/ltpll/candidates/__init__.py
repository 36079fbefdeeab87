"""Candidates: which labels each example may have, stored sparsely, and the one parser that reads them."""

from ltpll.candidates.storage import Candidates

__all__ = ["Candidates"]
