"""Rebalancers: each file here is one, found by its `name`; to add one, add a file."""

from __future__ import annotations

from ltpll.interfaces import Rebalancer
from ltpll.registry import Registry

REBALANCERS: Registry[Rebalancer] = Registry("rebalancer", Rebalancer).discover(__name__, list(__path__))
