"""Blocks: pieces that several methods and extras share."""
