"""Oracle-LA post-hoc (logit adjustment, Menon et al., ICLR 2021): subtract the true prior from a
finished model.
"""

from __future__ import annotations

from ltpll.rebalancers.oracle_la import OracleLA


class OracleLAPosthoc(OracleLA):
    """Post-hoc oracle logit adjustment (Menon et al., ICLR 2021): for predictions only.

    Training is the same as without rebalancing, so a single run gives both results.

    Formula:
        π          = class_frequencies / their sum;  a class with frequency 0 counts as the rarest
                     other one
        targets    from ẑ = z
        prediction = z − log π

    References:
        Aditya Krishna Menon, Sadeep Jayasumana, Ankit Singh Rawat, Himanshu Jain, Andreas Veit and
        Sanjiv Kumar: Long-Tail Learning via Logit Adjustment, ICLR 2021.
        https://openreview.net/forum?id=37nvvqkCo5

    Args:
        class_frequencies: The number or the share of training examples of each class.

    Examples:
        >>> rebalancer = OracleLAPosthoc(class_frequencies=[600, 300, 10])
        >>> classifier = PartialLabelClassifier(rebalancer=rebalancer)
    """

    name = "oracle-la-posthoc"
    places = frozenset({"prediction"})
