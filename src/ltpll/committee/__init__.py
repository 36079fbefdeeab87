"""Committee: several learners, weighted by what held-out candidate sets reveal about them."""

from ltpll.committee.committee import Committee
from ltpll.committee.forest import SoftForest

__all__ = ["Committee", "SoftForest"]
