"""Columns: tables of numbers, categories, dates and texts as one matrix of numbers."""

from ltpll.columns.bins import PiecewiseLinear

__all__ = ["PiecewiseLinear"]
