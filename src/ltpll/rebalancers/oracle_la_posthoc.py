"""Oracle-LA post-hoc (logit adjustment, Menon et al., ICLR 2021): subtract the true prior from a finished model."""

from __future__ import annotations

from ltpll.rebalancers.oracle_la import OracleLA


class OracleLAPosthoc(OracleLA):
    """The true log-prior, subtracted at prediction only: training is that of `none`, so one run gives both rows of a table."""

    name = "oracle-la-posthoc"
    places = frozenset({"prediction"})
