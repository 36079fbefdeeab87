"""Analysis: what candidate sets say about themselves and about the class prior."""
