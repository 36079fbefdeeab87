"""Reproduces the RECORDS paper (ICLR 2023): its tables and figures, beside our runs."""
