"""Regime: how candidate sets probably arose, decided by tests with stated error rates.

Independent wrong labels are taken for something else with a probability of 1 % (`SIZE`). Rows that
were drawn one by one, from whatever distribution of sets, are taken for groups with a probability
of at most 0.2 % (`GROUP_SIZE` for each of two tests).

What sets alone cannot show: groups among shuffled rows if few classes make all sets frequent or
rows are missing, groups in rows that were sorted by set, and whether neighbouring rows with equal
sets are copies of one example rather than objects of one picture. The first two are unclear, and
the last is taken for co-occurrence; `groups` settle all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ltpll.priors.distinct_sets import DistinctSets
from ltpll.priors.grouping import (
    Clusters,
    counts_test,
    given_groups,
    order_test,
    runs_of_equal_sets,
    typical_groups,
)
from ltpll.priors.independence import absences_test, pairs_test, sizes_test

Regime = Literal["independent", "co-occurrence", "unclear", "known"]

SIZE = 0.01
GROUP_SIZE = 0.001
# Of the rows of given groups must share their set; a few may have been corrected by hand.
AGREEING = 0.9
# Of the candidates of groups must have a row of their own; below 1, since rows may be missing.
COMPLETE = 0.7
GAIN = 0.5  # of what shuffled rows lack to complete groups, the order must supply


@dataclass(frozen=True)
class Evidence:
    """A statistic of the sets, what it would be by chance, and what it indicates.

    `p` is the probability of a value at least as extreme, or None if the statistic is not a test.
    """

    what: str
    observed: float
    expected: float | None
    p: float | None
    speaks_for: str


@dataclass(frozen=True)
class Decision:
    """The regime, the reason in one sentence, the evidence, and the groups of rows."""

    regime: Regime
    because: str
    evidence: list[Evidence]
    clusters: Clusters | None = None


def decide_regime(sets: DistinctSets, groups: npt.NDArray[np.int64] | None = None) -> Decision:
    """Decide how the sets arose.

    Groups that share their sets, given or visible in the order or in the counts of equal sets, mean
    co-occurrence. Otherwise wrong labels are independent unless one of three tests rejects that.
    """
    if (sets.sizes == 1).all():
        return Decision("known", "every set has a single label, so the class counts are known", [])
    # A class that is nowhere a candidate was not among the labels that could join.
    sets = sets._replace(matrix=sets.matrix[:, sets.appearances > 0])
    evidence: list[Evidence] = []
    told = ""
    if groups is not None:
        told, clusters = _read_groups(sets, groups, evidence)
        if clusters is not None:
            return Decision("co-occurrence", told, evidence, clusters)
    grouped = _find_groups(sets, evidence)
    rejected, testable = _test_independence(sets, evidence)
    if grouped is not None:
        return Decision("co-occurrence", told + grouped[0], evidence, grouped[1])
    if rejected:
        hidden = "rows do not visibly share their sets in groups"
        if any(one.what.endswith("(sorted?)") for one in evidence):
            hidden = "the rows may be sorted, so that groups would not show"
        because = f"wrong labels do not join independently, and {hidden}"
    elif not testable:
        because = "sets like these cannot show whether wrong labels join independently"
    else:
        because = "no test rejects that wrong labels join independently of the true label"
    return Decision(
        "unclear" if rejected or not testable else "independent", told + because, evidence
    )


def _read_groups(
    sets: DistinctSets, groups: npt.NDArray[np.int64], evidence: list[Evidence]
) -> tuple[str, Clusters | None]:
    """Whether the given groups share their sets: the reason, and the groups if they do."""
    clusters, agreeing = given_groups(sets, groups)
    complete = clusters.completeness
    for what, value, least in (
        ("rows with their group's set", agreeing, AGREEING),
        ("labels with a row in group", complete, COMPLETE),
    ):
        speaks_for = "co-occurrence" if value >= least else "not co-occurrence"
        evidence.append(Evidence(what, value, None, None, speaks_for))
    if agreeing < AGREEING:
        return "rows of a group do not share one set; ", None
    if complete < COMPLETE:
        fewer = "groups have fewer rows than labels, so that most labels cannot be true in them; "
        return fewer, None
    return "the rows of a group share one set, and there are rows for all of its labels", clusters


def _find_groups(sets: DistinctSets, evidence: list[Evidence]) -> tuple[str, Clusters] | None:
    """The reason and the groups if rows visibly share their sets in groups."""
    order = order_test(sets)
    if order is not None:
        complete = order.completeness >= COMPLETE and order.gain >= GAIN
        found = order.p < GROUP_SIZE and complete and not order.sorted
        speaks_for = "co-occurrence" if found else "neither"
        which = "equal neighbours (sorted?)" if order.sorted else "equal neighbours"
        shares = order.completeness, order.expected_completeness
        evidence.append(Evidence(which, order.equal, order.expected, order.p, speaks_for))
        evidence.append(Evidence("labels with a row in runs", *shares, None, speaks_for))
        if found:
            because = "neighbouring rows share their sets, in runs with rows for all labels"
            return because, runs_of_equal_sets(sets)
    counts = counts_test(sets)
    if counts is None:
        return None
    found = counts.p < GROUP_SIZE and counts.completeness >= COMPLETE
    speaks_for = "co-occurrence" if found else "neither"
    what = "sets with too few rows"
    evidence.append(Evidence(what, counts.too_few, counts.expected, counts.p, speaks_for))
    if not found:
        return None
    because = "fewer sets lack rows for all of their labels than if rows had been drawn one by one"
    return because, typical_groups(sets)


def _test_independence(sets: DistinctSets, evidence: list[Evidence]) -> tuple[bool, bool]:
    """Whether independence is rejected, and whether it could have been."""
    tests = {
        "surplus of shared pairs": pairs_test(sets),
        "small against large sets": sizes_test(sets),
    }
    testable = any(result is not None for result in tests.values())
    tests["rarest candidate"] = absences_test(sets)
    rejected = False
    for what, result in tests.items():
        if result is not None:
            against = result.p < SIZE / len(tests)
            rejected |= against
            otherwise = "independent" if testable else "neither"
            evidence.append(Evidence(what, *result, "not independent" if against else otherwise))
    return rejected, testable
