"""Priors: what the candidate sets alone say about the class prior."""
