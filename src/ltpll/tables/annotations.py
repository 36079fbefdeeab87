"""Annotations: labels of several annotators, one per row, turned into candidate sets and weights of the candidates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.errors import InputError, InputWarning, shown
from ltpll.formatting import counted

VOTE_WEIGHTS = ("reliability", "counts", "none")
DEFAULT_VOTE_WEIGHTS = "reliability"

# Chosen on simulated crowds, like those of benchmarks/crowds.py.
VOTES_FOR_OWN_CONFUSION = 20.0  # votes on a class at which an annotator's own confusion counts as much as that of all annotators
VOTES_FOR_OWN_ACCURACY = (
    8.0  # votes at which an annotator's own accuracy counts as much as that of all annotators
)
USUAL_ACCURACY, VOTES_FOR_ACCURACY = (
    0.8,
    20.0,
)  # what is assumed about annotators, and the votes that count as much as the assumption
EXAMPLES_OF_EACH_CLASS = (
    2.0  # added to the estimated number of examples, so that few votes do not rule a class out
)
# Power of the likelihood: examples that mislead one annotator mislead others, and a network that has learned the votes repeats them.
TRUST = 0.4
LEAST_SHARE = (
    0.01  # added to the weight of each candidate, so that the network can outvote the annotators
)
MOST_ROUNDS = 50
CONVERGED = 1e-4
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AnnotatorVotes:
    """One entry per annotation; an annotator may give an example several labels, each of them once."""

    rows: npt.NDArray[np.int64]
    annotators: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    names: tuple[str, ...]  # annotator names

    def select(self, rows: npt.NDArray[np.int64], n_rows: int) -> AnnotatorVotes:
        """The votes on some of the examples, which are renumbered from 0."""
        position = np.full(n_rows, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        moved = position[self.rows]
        kept = np.flatnonzero(moved >= 0)
        kept = kept[np.argsort(moved[kept], kind="stable")]
        return AnnotatorVotes(moved[kept], self.annotators[kept], self.labels[kept], self.names)


class Rule(NamedTuple):
    """Which of an example's annotated labels become its candidates."""

    kind: Literal["union", "votes", "top"]
    k: int = 1


def vote_rule(text: str) -> Rule:
    """Parse a rule: `union` (all labels), `votes-2` (labels of at least two annotators) or `top-3` (the three most frequent labels).

    `votes>=2` is the same as `votes-2`, but has to be quoted in a shell.
    """
    plain = text.strip().lower()
    if plain == "union":
        return Rule("union")
    for kind, pattern in (
        ("votes", r"votes(?:-|\s*>=\s*)([0-9]{1,9})"),
        ("top", r"top-([0-9]{1,9})"),
    ):
        found = re.fullmatch(pattern, plain)
        if found and int(found[1]) >= 1:
            return Rule("votes" if kind == "votes" else "top", int(found[1]))
        if found:
            raise InputError(
                f"The rule {shown(text)} asks for fewer than 1: give a whole number of at least 1, as in votes-2 or top-3."
            )
    problem = (
        "names several rules"
        if len(re.findall(r"union|votes|top-", plain)) > 1
        else "is not a rule"
    )
    raise InputError(
        f"{shown(text)} {problem} for turning annotations into sets: give one of union, votes-2 and top-3."
    )


def drop_repeated_votes(
    rows: npt.NDArray[np.int64], annotators: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Drop repeated annotations and sort by example, keeping the order within an example."""
    order = np.lexsort(
        (labels, annotators, rows)
    )  # stable, so the first of several equal entries is kept
    same = np.ones(len(order), dtype=bool)
    same[:1] = False
    for column in (rows, annotators, labels):
        same[1:] &= column[order][1:] == column[order][:-1]
    kept = np.sort(order[~same])
    kept = kept[np.argsort(rows[kept], kind="stable")]
    return rows[kept], annotators[kept], labels[kept]


def sets_from_votes(
    votes: AnnotatorVotes, n_rows: int, n_classes: int, rule: Rule
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`indptr` and labels of the candidate sets; labels that tie with the last of the top k are kept."""
    keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
    rows, labels = keys // n_classes, keys % n_classes
    if rule.kind == "top":
        order = np.lexsort((-times, rows))
        start = np.searchsorted(rows, np.arange(n_rows + 1))
        # Position of each row's k-th most frequent label; a row with fewer labels keeps all of them.
        last = np.minimum(start[:-1] + rule.k, start[1:]) - 1
        kept = times >= times[order][last][rows]
    else:
        kept = times >= rule.k
    indptr = np.searchsorted(rows[kept], np.arange(n_rows + 1))
    return indptr.astype(np.int64), labels[kept]


def _some_candidates(
    votes: AnnotatorVotes, n_rows: int, n_classes: int, rule: Rule, task: Callable[[int], str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The sets by a rule, where examples none of whose labels has enough votes keep all their labels, since nothing is agreed on."""
    indptr, labels = sets_from_votes(votes, n_rows, n_classes, rule)
    empty = np.diff(indptr) == 0
    if not empty.any():
        return indptr, labels
    voted = np.bincount(votes.rows, minlength=n_rows) > 0
    if not voted.all():
        raise InputError(
            f"{task(int(np.argmin(voted)))} has no votes: give every example at least one."
        )
    n = int(empty.sum())
    none = f"no label with at least {rule.k} votes"
    if n == n_rows:
        raise InputError(
            f"{task(0)} has {none}, and neither has any other of {counted(n_rows, 'task')}: require fewer votes, or use union or top-1."
        )
    first = task(int(np.argmax(empty))) + (", …" if n > 1 else "")
    warnings.warn(
        f"{n:,} of {n_rows:,} tasks {'has' if n == 1 else 'have'} {none} ({first[0].lower()}{first[1:]}): all their labels are candidates.",
        InputWarning,
        stacklevel=3,
    )
    all_starts, every = sets_from_votes(votes, n_rows, n_classes, Rule("union"))
    owners, all_owners = (
        np.repeat(np.arange(n_rows), np.diff(starts)) for starts in (indptr, all_starts)
    )
    kept = np.isin(all_owners * n_classes + every, owners * n_classes + labels) | empty[all_owners]
    return np.searchsorted(all_owners[kept], np.arange(n_rows + 1)).astype(np.int64), every[kept]


def voted_candidates(
    votes: AnnotatorVotes,
    n_rows: int,
    classes: Sequence[Hashable],
    rule: str,
    weights: str,
    task: Callable[[int], str],
) -> Candidates:
    """The candidate sets of votes, weighted by them; `task` is how a message refers to an example."""
    indptr, labels = _some_candidates(votes, n_rows, len(classes), vote_rule(rule), task)
    sets = Candidates.from_flat(indptr, labels, len(classes), tuple(classes))
    return sets.with_weights(vote_weights(votes, indptr, labels, len(classes), weights))


# ---- weights ----------------------------------------------------------------------------------------------------------


def check_vote_weights(how: str) -> None:
    """Refuse an unknown way to weight candidates by votes."""
    if how not in VOTE_WEIGHTS:
        raise InputError(
            f"The vote weights are {shown(how)}: choose {', '.join(VOTE_WEIGHTS[:-1])} or {VOTE_WEIGHTS[-1]}."
        )


def vote_weights(
    votes: AnnotatorVotes, indptr: Numbers, labels: Numbers, n_classes: int, how: str
) -> Floats | None:
    """One weight per candidate of sets that were made from votes; None if `how` is "none".

    The weight is how well a label explains the votes on its example. It does not depend on how frequent the label is.

    Args:
        votes: The votes.
        indptr: Row i has the candidates `labels[indptr[i]:indptr[i + 1]]`, sorted.
        labels: Class numbers.
        n_classes: The number of classes.
        how: "counts" is the share of the votes; "reliability" is the likelihood of the votes (see `vote_likelihoods`).
    """
    check_vote_weights(how)
    if how == "none":
        return None
    n_rows = len(indptr) - 1
    keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
    voted = keys // n_classes
    if how == "counts":
        weights = times / np.bincount(voted, weights=times, minlength=n_rows)[voted]
    else:
        weights = vote_likelihoods(votes, n_rows, n_classes) ** TRUST
        weights = weights / np.bincount(voted, weights=weights)[voted] + LEAST_SHARE
    # Sets by another rule than union lack some of the labels.
    owners = np.repeat(np.arange(n_rows), np.diff(indptr))
    return np.asarray(weights[np.searchsorted(keys, owners * n_classes + labels)])


def vote_likelihoods(votes: AnnotatorVotes, n_rows: int, n_classes: int) -> Floats:
    """How likely the votes on an example are for each label that it was given, by the annotators' reliabilities.

    The model of Dawid and Skene ("Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm", Applied Statistics 1979):
    annotator a labels an example of class c as l with probability θ_a[c, l]. Since annotators label few examples of rare classes,
    θ_a is shrunk towards its mean: a is right with probability r_a, and errs as annotators together do. If an annotator gives an example
    several labels, one of them is right with probability r_a, and no label is preferred to the others.

    Args:
        votes: The votes.
        n_rows: The number of examples, each with at least one vote.
        n_classes: The number of classes.

    Returns:
        One number for each distinct pair of example and label in the votes, sorted; those of an example sum to one.
    """
    pairs = _Ballots.of(votes, n_classes)
    posterior = pairs.vote_shares
    for _ in range(MOST_ROUNDS):
        log_likelihood = pairs.log_likelihood(posterior)
        prior = (
            np.bincount(pairs.labels, weights=posterior, minlength=n_classes)
            + EXAMPLES_OF_EACH_CLASS
        )
        updated = _normalised(
            log_likelihood + np.log(prior / prior.sum())[pairs.labels], pairs.rows, n_rows
        )
        change = np.abs(updated - posterior).max()
        posterior = updated
        if change < CONVERGED:
            break
    return _normalised(log_likelihood, pairs.rows, n_rows)


@dataclass(frozen=True)
class _Ballots:
    """All combinations of a ballot (an annotator's labels for an example) with a label that somebody gave the example.

    `rows` and `labels` have an entry for each pair of example and label; all other arrays have one for each combination.
    """

    rows: Numbers
    labels: Numbers
    vote_shares: Floats
    n_classes: int
    pair: Numbers  # position in `rows` and `labels`
    annotator: Numbers
    size: Numbers  # labels of the ballot
    agrees: npt.NDArray[np.bool_]  # whether the ballot has the label
    single: Numbers  # combinations of a ballot with one label
    of_truth: Numbers  # number of the annotator and the label, for each of `single`
    of_vote: Numbers  # number of the annotator, the label and the label of the ballot, for each of `single`
    mistaken: Numbers  # positions in `single` whose ballot has another label
    of_mistaken_truth: Numbers  # number of the label, for each of `mistaken`
    of_mistake: Numbers  # number of the label and the label of the ballot, for each of `mistaken`

    @classmethod
    def of(cls, votes: AnnotatorVotes, n_classes: int) -> _Ballots:
        keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
        rows, labels = keys // n_classes, keys % n_classes
        n_rows, n_annotators = int(rows[-1]) + 1, int(votes.annotators.max()) + 1
        ballots, of_ballot, size = np.unique(
            votes.rows * n_annotators + votes.annotators, return_inverse=True, return_counts=True
        )
        row, annotator = ballots // n_annotators, ballots % n_annotators
        start = np.searchsorted(rows, np.arange(n_rows + 1))
        times_row = np.diff(start)[row]
        ballot = np.repeat(np.arange(len(ballots)), times_row)
        pair = np.repeat(start[:-1][row] - np.cumsum(times_row) + times_row, times_row) + np.arange(
            len(ballot)
        )
        agrees = np.isin(ballot * n_classes + labels[pair], of_ballot * n_classes + votes.labels)
        given = np.empty(len(ballots), dtype=np.int64)
        given[of_ballot] = votes.labels  # of a ballot with several labels, any of them
        single = np.flatnonzero(size[ballot] == 1)
        truth, vote = labels[pair[single]], given[ballot[single]]
        by_truth = annotator[ballot[single]] * n_classes + truth
        mistaken = np.flatnonzero(truth != vote)
        return cls(
            rows,
            labels,
            times / np.bincount(rows, weights=times)[rows],
            n_classes,
            pair,
            annotator[ballot],
            size[ballot],
            agrees,
            single,
            np.unique(by_truth, return_inverse=True)[1],
            np.unique(by_truth * n_classes + vote, return_inverse=True)[1],
            mistaken,
            np.unique(truth[mistaken], return_inverse=True)[1],
            np.unique(truth[mistaken] * n_classes + vote[mistaken], return_inverse=True)[1],
        )

    def log_likelihood(self, posterior: Floats) -> Floats:
        """The log-likelihood of the ballots for each pair of example and label, up to a constant for each example."""
        weight, others = posterior[self.pair], np.maximum(self.n_classes - self.size, 1)
        right, total = (
            np.bincount(self.annotator, weights=weight * self.agrees),
            np.bincount(self.annotator, weights=weight),
        )
        overall = (right.sum() + VOTES_FOR_ACCURACY * USUAL_ACCURACY) / (
            total.sum() + VOTES_FOR_ACCURACY
        )
        accuracy = (right + VOTES_FOR_OWN_ACCURACY * overall) / (total + VOTES_FOR_OWN_ACCURACY)
        accuracy = np.clip(accuracy, 1e-3, 1 - 1e-3)[self.annotator]
        likelihood = np.where(self.agrees, accuracy / self.size, (1 - accuracy) / others)
        # Ballots with one label also tell which labels an annotator confuses.
        weight, mean = weight[self.single], likelihood[self.single]
        errors = weight[self.mistaken]
        confused = (_sums(self.of_mistake, errors) + 0.5) / (
            _sums(self.of_mistaken_truth, errors) + 0.5 * (self.n_classes - 1)
        )
        mean[self.mistaken] = (1 - accuracy[self.single][self.mistaken]) * confused
        likelihood[self.single] = (_sums(self.of_vote, weight) + VOTES_FOR_OWN_CONFUSION * mean) / (
            _sums(self.of_truth, weight) + VOTES_FOR_OWN_CONFUSION
        )
        return np.asarray(
            np.bincount(self.pair, weights=np.log(likelihood), minlength=len(self.rows)),
            dtype=np.float64,
        )


def _sums(group: Numbers, values: Floats) -> Floats:
    """For each entry the sum over its group."""
    return np.asarray(np.bincount(group, weights=values)[group]) if len(group) else values


def _normalised(log_shares: Floats, rows: Numbers, n_rows: int) -> Floats:
    """Exponentials that sum to one in each row; `rows` is sorted and has every row."""
    largest = np.maximum.reduceat(log_shares, np.searchsorted(rows, np.arange(n_rows)))
    shares = np.exp(log_shares - largest[rows])
    return np.asarray(shares / np.bincount(rows, weights=shares)[rows])


# ---- in Python --------------------------------------------------------------------------------------------------------


def candidates_from_votes(
    rows: npt.ArrayLike,
    annotators: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    classes: Sequence[Hashable] | None = None,
    n_classes: int | None = None,
    rule: str = "union",
    weights: str = DEFAULT_VOTE_WEIGHTS,
) -> Candidates:
    """Build candidate sets and their weights from the votes of several annotators.

    Args:
        rows: The example of each vote, numbered from 0; every example has at least one vote.
        annotators: The annotator of each vote: names or numbers.
        labels: The label of each vote: class names if `classes` is given or if they are text, and class numbers from 0 otherwise. An
            annotator may give an example several labels.
        classes: The names of the classes in order; by default the sorted names that occur.
        n_classes: The number of classes if labels are numbers; by default, numbers run up to the largest one that occurs.
        rule: Which labels become candidates: `union` (all), `votes-2` (those of at least two annotators; all labels of an example if
            none has as many) or `top-3`.
        weights: How votes weight the candidates: "reliability" (by the reliability of each annotator, estimated as by Dawid and Skene),
            "counts" (by the share of the votes) or "none".

    Returns:
        Candidates with `weights`, for `PartialLabelClassifier.fit`.

    Raises:
        InputError: The arrays do not fit each other, a label is not a class, an example has no vote, or no example has enough for
            the rule.

    Examples:
        >>> candidates = candidates_from_votes([0, 0, 0, 1], ["ann", "bob", "cid", "ann"], ["cat", "cat", "dog", "dog"], weights="counts")
        >>> candidates.weights
        tensor([0.6667, 0.3333, 1.0000])
    """
    check_vote_weights(weights)
    how = vote_rule(rule)
    row, who, given = (np.asarray(column) for column in (rows, annotators, labels))
    if not (row.ndim == who.ndim == given.ndim == 1 and len(row) == len(who) == len(given) > 0):
        raise InputError(
            f"The votes have {row.shape} rows, {who.shape} annotators and {given.shape} labels: give three lists of equal length, "
            "with one entry per vote."
        )
    if row.dtype.kind not in "iu" or row.min() < 0:
        raise InputError(
            "The rows of the votes must be whole numbers from 0: number the examples in the order of the features."
        )
    names, numbers = _class_numbers(given, classes, n_classes)
    workers, worker = np.unique(who, return_inverse=True)
    votes = AnnotatorVotes(
        *drop_repeated_votes(row.astype(np.int64), worker.astype(np.int64), numbers),
        tuple(map(str, workers)),
    )
    if classes is None:
        warn_of_similar_names(names, votes.labels)
    indptr, flat = _some_candidates(votes, int(row.max()) + 1, len(names), how, "Example {}".format)
    return Candidates.from_flat(indptr, flat, len(names), names).with_weights(
        vote_weights(votes, indptr, flat, len(names), weights)
    )


def _class_numbers(
    labels: npt.NDArray[Any], classes: Sequence[Hashable] | None, n_classes: int | None
) -> tuple[tuple[Hashable, ...], Numbers]:
    """The classes in order, and the class number of each label."""
    if classes is None and labels.dtype.kind in "iu":
        number = labels.astype(np.int64)
        names: tuple[Hashable, ...] = tuple(
            range(int(number.max()) + 1 if n_classes is None else n_classes)
        )
        wrong = (number < 0) | (number >= len(names))
    else:
        names = tuple(sorted(set(labels.tolist()))) if classes is None else tuple(classes)
        position = {name: i for i, name in enumerate(names)}
        number = np.asarray([position.get(label, -1) for label in labels.tolist()], dtype=np.int64)
        wrong = number < 0
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"Vote {first} has the label {shown(labels[first].item())}, which is not one of the {len(names)} classes."
        )
    return names, number
