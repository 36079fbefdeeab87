"""Methods, one per file, found by their `name`.

To add one, add a file (the imports here are for type checkers).
"""

from __future__ import annotations

from ltpll.interfaces import Method
from ltpll.methods.alim import ALIM
from ltpll.methods.cavl import CAVL
from ltpll.methods.cc import CC
from ltpll.methods.corr import CORR
from ltpll.methods.deacon import DEACON
from ltpll.methods.dirk import DIRK
from ltpll.methods.htc import HTC
from ltpll.methods.lw import LW
from ltpll.methods.papi import PaPi
from ltpll.methods.pico import PiCO
from ltpll.methods.pop import POP
from ltpll.methods.proden import PRODEN
from ltpll.methods.solar import SoLar
from ltpll.registry import Registry

METHODS: Registry[Method] = Registry("method", Method, "ltpll.methods")
METHODS.register_package(__name__, list(__path__))

__all__ = [
    "ALIM",
    "CAVL",
    "CC",
    "CORR",
    "DEACON",
    "DIRK",
    "HTC",
    "LW",
    "METHODS",
    "POP",
    "PRODEN",
    "PaPi",
    "PiCO",
    "SoLar",
]
