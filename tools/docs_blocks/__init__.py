"""The blocks that `render_docs.py` fills, by page."""
