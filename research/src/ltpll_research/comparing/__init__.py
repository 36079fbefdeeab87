"""Comparing: systems on the same problems over seeds, as tables, pictures and a page."""
