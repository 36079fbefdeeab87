"""Columns: tables of numbers, categories, dates and texts as one matrix of numbers."""

from ltpll.columns.bins import PiecewiseLinear
from ltpll.columns.encoder import ColumnEncoder

__all__ = ["ColumnEncoder", "PiecewiseLinear"]
