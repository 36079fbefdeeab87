"""Studies: small experiments that run on any machine, behind the commands demo and toy."""

from pathlib import Path

RESEARCH = Path(__file__).resolve().parents[1]  # whose code is part of what a study measures
