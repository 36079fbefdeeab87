"""Oracle-LA post-hoc (logit adjustment, Menon et al., ICLR 2021): subtract the true prior from a finished model."""

from __future__ import annotations

from ltpll.rebalancers.oracle_la import OracleLA


class OracleLAPosthoc(OracleLA):
    """Post-hoc oracle logit adjustment (Menon et al., ICLR 2021): the true log-prior, subtracted from predictions only.

    Training is the same as without rebalancing, so a single run gives both results.

    Args:
        class_frequencies: The number or the share of training examples of each class.

    Example:
        >>> PartialLabelClassifier(rebalancer=OracleLAPosthoc(class_frequencies=[600, 300, 10]))
    """

    name = "oracle-la-posthoc"
    places = frozenset({"prediction"})
