"""Reproduces the RECORDS paper (ICLR 2023): its tables and figures as data, their runs, and the comparison with published numbers."""
