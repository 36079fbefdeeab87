"""Extras: each file here is one loss term that any method can take; to add one, add a file."""

from __future__ import annotations

from ltpll.interfaces import Extra
from ltpll.registry import Registry

EXTRAS: Registry[Extra] = Registry("extra", Extra).discover(__name__, list(__path__))
