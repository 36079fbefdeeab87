"""Readers: users' own files (tables, pictures, arrays) read within limits."""
