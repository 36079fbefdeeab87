"""Readers: users' own tables, pictures and arrays, read within limits on memory."""
