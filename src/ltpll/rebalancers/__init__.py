"""Rebalancers, one per file, found by their `name`.

To add one, add a file (the imports here are for type checkers).
"""

from __future__ import annotations

from ltpll.interfaces import Rebalancer
from ltpll.rebalancers.anchor import Anchor
from ltpll.rebalancers.auto import Auto
from ltpll.rebalancers.epoch_records import EpochRECORDS
from ltpll.rebalancers.mean_target import MeanTarget
from ltpll.rebalancers.none import NoRebalancing
from ltpll.rebalancers.oracle_la import OracleLA
from ltpll.rebalancers.oracle_la_posthoc import OracleLAPosthoc
from ltpll.rebalancers.records import RECORDS
from ltpll.rebalancers.set_evidence import SetEvidence
from ltpll.rebalancers.temp_oracle_la import TempOracleLA
from ltpll.registry import Registry

REBALANCERS: Registry[Rebalancer] = Registry("rebalancer", Rebalancer, "ltpll.rebalancers")
REBALANCERS.register_package(__name__, list(__path__))

__all__ = [
    "REBALANCERS",
    "RECORDS",
    "Anchor",
    "Auto",
    "EpochRECORDS",
    "MeanTarget",
    "NoRebalancing",
    "OracleLA",
    "OracleLAPosthoc",
    "SetEvidence",
    "TempOracleLA",
]
