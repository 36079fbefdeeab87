"""Extras, one loss term per file, found by their `name`.

To add one, add a file (the imports here are for type checkers).
"""

from __future__ import annotations

from ltpll.extras.balanced_head import BalancedHead
from ltpll.extras.bcl import BCL
from ltpll.extras.ldd import LDD
from ltpll.extras.mixup import Mixup
from ltpll.extras.paco import PaCO
from ltpll.extras.sfn import SFN
from ltpll.interfaces import Extra
from ltpll.registry import Registry

EXTRAS: Registry[Extra] = Registry("extra", Extra, "ltpll.extras")
EXTRAS.register_package(__name__, list(__path__))

__all__ = ["BCL", "EXTRAS", "LDD", "SFN", "BalancedHead", "Mixup", "PaCO"]
