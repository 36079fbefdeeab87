"""Regime: how candidate sets probably arose, decided by tests with known error rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ltpll.priors.distinct_sets import DistinctSets
from ltpll.priors.grouping import Clusters, equal_sets, given_groups, runs, test_counts, test_order
from ltpll.priors.independence import test_absences, test_pairs, test_sizes

Regime = Literal["independent", "co-occurrence", "unclear", "known"]
Speaks = Literal["independent", "not independent", "co-occurrence", "not co-occurrence", "neither"]

SIZE = 0.01  # how often independent wrong labels are taken for something else
GROUP_SIZE = 0.001  # how often rows drawn one by one are taken for groups
COMPLETE = 0.7  # of the candidates of a group, how many need a row of their own; below 1, since rows may be missing
GAIN = 0.5


@dataclass(frozen=True)
class Evidence:
    """A statistic of the sets.

    `expected` is its value if the sets were `compared_with`, and `p` the probability of one at least as extreme.
    """

    what: str
    observed: float
    expected: float | None
    p: float | None
    speaks_for: Speaks


@dataclass(frozen=True)
class Decision:
    """The regime, the reason in one sentence, the evidence, and the groups of rows if the regime is co-occurrence."""

    regime: Regime
    because: str
    evidence: list[Evidence]
    clusters: Clusters | None = None


def decide_regime(sets: DistinctSets, groups: npt.NDArray[np.int64] | None = None) -> Decision:
    """Decide how the sets arose.

    Groups that share their sets, given or visible in the order or in the counts of equal sets, mean co-occurrence. Otherwise wrong
    labels are independent unless one of three tests says no.

    Args:
        sets: The distinct candidate sets.
        groups: The picture or scene that each row belongs to, if known.

    Returns:
        The regime and the evidence for it.
    """
    if (sets.sizes == 1).all():
        return Decision("known", "every set has a single label, so the class counts are known", [])
    evidence: list[Evidence] = []
    told = ""
    if groups is not None:
        clusters, agreeing = given_groups(sets, groups)
        complete = agreeing > 0.9 and clusters.completeness >= COMPLETE
        evidence.append(
            Evidence("rows that share the set of their group", agreeing, None, None, "co-occurrence" if complete else "not co-occurrence")
        )
        evidence.append(
            Evidence(
                "candidates with a row of their own in their group",
                clusters.completeness,
                1.0,
                None,
                "co-occurrence" if complete else "not co-occurrence",
            )
        )
        if complete:
            return Decision(
                "co-occurrence", "the rows of a group share one set, and groups have a row for each label of it", evidence, clusters
            )
        told = (
            "the rows of a group do not share one set with a row for each label; "
            if agreeing <= 0.9
            else "groups have fewer rows than labels; "
        )
    grouped = _find_groups(sets, evidence)
    tests = {
        "pairs of labels that share sets": test_pairs(sets),
        "class shares in small and large sets": test_sizes(sets),
        "rarest candidate": test_absences(sets),
    }
    rejected = []
    for what, p in tests.items():
        if p is None:
            continue
        against = p < SIZE / len(tests)
        rejected += [what] if against else []
        evidence.append(Evidence(what, p, None, p, "not independent" if against else "independent"))
    if grouped is not None:
        return Decision("co-occurrence", told + grouped[0], evidence, grouped[1])
    if not rejected:
        return Decision("independent", told + "no test finds a departure from wrong labels that join independently", evidence)
    return Decision(
        "unclear", f"{told}wrong labels do not join independently ({', '.join(rejected)}), and rows do not share sets in groups", evidence
    )


def _find_groups(sets: DistinctSets, evidence: list[Evidence]) -> tuple[str, Clusters] | None:
    """The reason and the groups if rows share their sets in groups."""
    order = test_order(sets)
    if order is not None:
        found = order.p < GROUP_SIZE and order.completeness >= COMPLETE and order.gain >= GAIN and not order.sorted
        speaks: Speaks = "co-occurrence" if found else "neither"
        evidence.append(Evidence("neighbouring rows with equal sets", order.equal, order.expected, order.p, speaks))
        evidence.append(
            Evidence("labels with a row of their own in runs of equal sets", order.completeness, order.expected_completeness, None, speaks)
        )
        if found:
            return "neighbouring rows share their sets, in runs with a row for each label", runs(sets)
    counts = test_counts(sets)
    if counts is not None:
        found = counts.p < GROUP_SIZE and counts.completeness >= COMPLETE
        evidence.append(
            Evidence("sets with fewer rows than labels", counts.too_few, counts.expected, counts.p, "co-occurrence" if found else "neither")
        )
        if found:
            return "sets have a row for each of their labels more often than rows drawn one by one would", equal_sets(sets)
    return None
