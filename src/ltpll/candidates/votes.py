"""Votes: labels of several annotators, and the candidate sets and weights that they make."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.cells import names_to_numbers
from ltpll.candidates.similar_names import warn_of_similar_names
from ltpll.errors import InputError, InputWarning, shown
from ltpll.formatting import counted

if TYPE_CHECKING:
    from ltpll.candidates import Candidates

VOTE_WEIGHTS = ("reliability", "counts", "none")
DEFAULT_VOTE_WEIGHTS = "reliability"

# Chosen on simulated crowds, like those of benchmarks/crowds.py.
# Votes on a class at which an annotator's own confusion counts as much as that of all annotators.
VOTES_FOR_OWN_CONFUSION = 20.0
# Votes at which an annotator's own accuracy counts as much as that of all annotators.
VOTES_FOR_OWN_ACCURACY = 8.0
# What is assumed about annotators, and the votes that count as much as the assumption.
USUAL_ACCURACY, VOTES_FOR_ACCURACY = 0.8, 20.0
# Added to the estimated number of examples, so that few votes do not rule a class out.
EXAMPLES_OF_EACH_CLASS = 2.0
# Power of the likelihood: examples that mislead one annotator mislead others, and a network that
# has learned the votes repeats them.
TRUST = 0.4
# Added to the weight of each candidate, so that the network can outvote the annotators.
LEAST_SHARE = 0.01
MOST_ROUNDS = 50
CONVERGED = 1e-4
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AnnotatorVotes:
    """One entry per vote; an annotator may give an example several labels, each of them once."""

    rows: Numbers
    annotators: Numbers
    labels: Numbers
    names: tuple[str, ...]  # annotator names

    def select(self, rows: Numbers, n_rows: int) -> AnnotatorVotes:
        """The votes on some of the examples, which are renumbered from 0."""
        position = np.full(n_rows, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        moved = position[self.rows]
        kept = np.flatnonzero(moved >= 0)
        kept = kept[np.argsort(moved[kept], kind="stable")]
        return AnnotatorVotes(moved[kept], self.annotators[kept], self.labels[kept], self.names)


def drop_repeated_votes(
    rows: Numbers, annotators: Numbers, labels: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Drop repeated votes and sort by example, keeping the order within an example."""
    keys = rows * (annotators.max(initial=0) + 1) + annotators
    keys = keys * (labels.max(initial=0) + 1) + labels
    first = np.sort(np.unique(keys, return_index=True)[1])
    kept = first[np.argsort(rows[first], kind="stable")]
    return rows[kept], annotators[kept], labels[kept]


# ---- sets -------------------------------------------------------------------------------------


def vote_rule(text: str) -> tuple[int, int]:
    """The fewest votes of a candidate, and how many labels with the most votes count (0 for all).

    `union` means all labels, `votes-2` those of at least two annotators, and `top-3` the three most
    frequent ones. `votes>=2` is the same as `votes-2`, but has to be quoted in a shell.
    """
    plain = text.strip().lower()
    found = re.fullmatch(r"votes(?:-|\s*>=\s*)([0-9]{1,9})|top-([0-9]{1,9})|union", plain)
    least, top = (int(found[1] or 1), int(found[2] or 0)) if found else (0, 0)
    if least < 1 or (plain.startswith("top") and top < 1):
        raise InputError(
            f"{shown(text)} is not a rule for turning votes into sets: give one of union, votes-2 "
            "and top-3, with a number of at least 1."
        )
    return least, top


def voted_candidates(
    votes: AnnotatorVotes,
    n_rows: int,
    classes: Sequence[Hashable],
    rule: str,
    weights: str,
    task: Callable[[int], str],
) -> Candidates:
    """The candidate sets of votes, weighted by them, as in `candidates_from_votes`.

    `task` is how a message refers to an example. Weights say how well a label explains the votes,
    however frequent the label is.
    """
    if weights not in VOTE_WEIGHTS:
        which = f"The vote weights are {shown(weights)}"
        raise InputError(f"{which}: choose reliability, counts or none.")
    n_classes = len(classes)
    keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
    rows = keys // n_classes
    kept = _chosen_by_rule(rows, times, n_rows, rule, task)
    indptr = np.searchsorted(rows[kept], np.arange(n_rows + 1))
    from ltpll.candidates import Candidates

    sets = Candidates.from_flat(indptr, keys[kept] % n_classes, n_classes, tuple(classes))
    if weights == "none":
        return sets
    if weights == "counts":
        return sets.with_weights((times / np.bincount(rows, weights=times)[rows])[kept])
    likely = vote_likelihoods(votes, n_rows, n_classes) ** TRUST
    return sets.with_weights((likely / np.bincount(rows, weights=likely)[rows] + LEAST_SHARE)[kept])


def _chosen_by_rule(
    rows: Numbers, times: Numbers, n_rows: int, rule: str, task: Callable[[int], str]
) -> npt.NDArray[np.bool_]:
    """Which pairs of an example and a label, with their numbers of votes, a rule chooses.

    Labels that tie with the last of the top k are chosen, too. Where no label has enough votes,
    nothing is agreed on, so all of them are chosen.
    """
    least, top = vote_rule(rule)
    start = np.searchsorted(rows, np.arange(n_rows + 1))
    voted = np.diff(start) > 0
    if not voted.all():
        raise InputError(
            f"{task(int(np.argmin(voted)))} has no votes: give every example at least one."
        )
    if top:
        # The number of votes of each example's k-th label; one with fewer labels keeps them all.
        last = np.minimum(start[:-1] + top, start[1:]) - 1
        return np.asarray(times >= times[np.lexsort((-times, rows))][last][rows])
    chosen = times >= least
    empty = np.bincount(rows[chosen], minlength=n_rows) == 0
    if empty.all():
        raise InputError(
            f"{task(0)} has no label with at least {least} votes, and neither has any other: "
            "require fewer votes, or use union or top-1."
        )
    if empty.any():
        n = int(empty.sum())
        warnings.warn(
            f"{n:,} of {counted(n_rows, 'task')} {'has' if n == 1 else 'have'} no label with at "
            f"least {least} votes ({task(int(np.argmax(empty)))}{', …' if n > 1 else ''}): all "
            "their labels are candidates.",
            InputWarning,
            stacklevel=4,
        )
    return np.asarray(chosen | empty[rows])


# ---- weights ----------------------------------------------------------------------------------


def vote_likelihoods(votes: AnnotatorVotes, n_rows: int, n_classes: int) -> Floats:
    """How likely the votes on an example are for each label that it was given.

    The model of Dawid and Skene ("Maximum Likelihood Estimation of Observer Error-Rates Using the
    EM Algorithm", Applied Statistics 1979): annotator a labels an example of class c as l with
    probability θ_a[c, l]. Since annotators label few examples of rare classes, θ_a is shrunk
    towards its mean: a is right with probability r_a, and errs as annotators together do. If an
    annotator gives an example several labels, one of them is right with probability r_a, and no
    label is preferred to the others.

    Returns:
        One number for each distinct pair of example and label in the votes, sorted; those of an
        example sum to one.
    """
    keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
    rows, labels = keys // n_classes, keys % n_classes
    log_likelihood_of = _ballot_model(votes, rows, labels, n_classes)
    posterior = times / np.bincount(rows, weights=times)[rows]
    for _ in range(MOST_ROUNDS):
        log_likelihood = log_likelihood_of(posterior)
        prior = np.bincount(labels, weights=posterior, minlength=n_classes) + EXAMPLES_OF_EACH_CLASS
        updated = _normalised(log_likelihood + np.log(prior / prior.sum())[labels], rows, n_rows)
        change = np.abs(updated - posterior).max()
        posterior = updated
        if change < CONVERGED:
            break
    return _normalised(log_likelihood, rows, n_rows)


def _ballot_model(
    votes: AnnotatorVotes, rows: Numbers, labels: Numbers, n_classes: int
) -> Callable[[Floats], Floats]:
    """The log-likelihood of the votes on each pair of example and label, given all posteriors.

    It is known up to a constant for each example. A ballot is what one annotator says about one
    example; it is combined with every label that somebody gave the example.
    """
    n_annotators = int(votes.annotators.max()) + 1
    ballots, of_ballot, sizes = np.unique(
        votes.rows * n_annotators + votes.annotators, return_inverse=True, return_counts=True
    )
    row = ballots // n_annotators
    start = np.searchsorted(rows, np.arange(int(rows[-1]) + 2))
    n_labels = np.diff(start)[row]
    # One entry for each combination.
    ballot = np.repeat(np.arange(len(ballots)), n_labels)
    first = np.repeat(start[:-1][row] - np.cumsum(n_labels) + n_labels, n_labels)
    pair = first + np.arange(len(ballot))
    annotator, size = (ballots % n_annotators)[ballot], sizes[ballot]
    agrees = np.isin(ballot * n_classes + labels[pair], of_ballot * n_classes + votes.labels)
    others = np.maximum(n_classes - size, 1)
    # Ballots with one label also tell which labels an annotator confuses: for each combination, the
    # annotator with the label, and both with the label of the ballot, are numbered.
    given = np.empty(len(ballots), dtype=np.int64)
    given[of_ballot] = votes.labels
    single = np.flatnonzero(size == 1)
    truth, vote = labels[pair[single]], given[ballot[single]]
    by_truth = annotator[single] * n_classes + truth
    of_truth, of_vote = _renumbered(by_truth), _renumbered(by_truth * n_classes + vote)
    mistaken = np.flatnonzero(truth != vote)
    of_mistaken_truth = _renumbered(truth[mistaken])
    of_mistake = _renumbered(truth[mistaken] * n_classes + vote[mistaken])

    def log_likelihood(posterior: Floats) -> Floats:
        weight = posterior[pair]
        right = np.bincount(annotator, weights=weight * agrees)
        total = np.bincount(annotator, weights=weight)
        overall = (right.sum() + VOTES_FOR_ACCURACY * USUAL_ACCURACY) / (
            total.sum() + VOTES_FOR_ACCURACY
        )
        accuracy = (right + VOTES_FOR_OWN_ACCURACY * overall) / (total + VOTES_FOR_OWN_ACCURACY)
        accuracy = np.clip(accuracy, 1e-3, 1 - 1e-3)[annotator]
        likelihood = np.where(agrees, accuracy / size, (1 - accuracy) / others)
        weight, mean = weight[single], likelihood[single]
        errors = weight[mistaken]
        confused = (_sums(of_mistake, errors) + 0.5) / (
            _sums(of_mistaken_truth, errors) + 0.5 * (n_classes - 1)
        )
        mean[mistaken] = (1 - accuracy[single][mistaken]) * confused
        likelihood[single] = (_sums(of_vote, weight) + VOTES_FOR_OWN_CONFUSION * mean) / (
            _sums(of_truth, weight) + VOTES_FOR_OWN_CONFUSION
        )
        return np.asarray(np.bincount(pair, weights=np.log(likelihood), minlength=len(rows)))

    return log_likelihood


def _renumbered(keys: Numbers) -> Numbers:
    return np.asarray(np.unique(keys, return_inverse=True)[1])


def _sums(group: Numbers, values: Floats) -> Floats:
    """For each entry the sum over its group."""
    return np.asarray(np.bincount(group, weights=values)[group])


def _normalised(log_shares: Floats, rows: Numbers, n_rows: int) -> Floats:
    """Exponentials that sum to one in each row; `rows` is sorted and has every row."""
    largest = np.maximum.reduceat(log_shares, np.searchsorted(rows, np.arange(n_rows)))
    shares = np.exp(log_shares - largest[rows])
    return np.asarray(shares / np.bincount(rows, weights=shares)[rows])


# ---- in Python --------------------------------------------------------------------------------


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
        labels: The label of each vote: class names if `classes` is given or if they are text, and
            class numbers from 0 otherwise. An annotator may give an example several labels.
        classes: The names of the classes in order; by default the sorted names that occur.
        n_classes: The number of classes if labels are numbers; by default, numbers run up to the
            largest one that occurs.
        rule: Which labels become candidates: `union` (all), `votes-2` (those of at least two
            annotators; all labels of an example if none has as many) or `top-3`.
        weights: How votes weight the candidates: "reliability" (by the reliability of each
            annotator, estimated as by Dawid and Skene), "counts" (by the share of the votes) or
            "none".

    Returns:
        Candidates with `weights`, for `PartialLabelClassifier.fit`.

    Raises:
        InputError: The arrays do not fit each other, a label is not a class, an example has no
            vote, or no example has enough for the rule.

    Examples:
        >>> annotators = ["ann", "bob", "cid", "ann"]
        >>> labels = ["cat", "cat", "dog", "dog"]
        >>> candidates = candidates_from_votes([0, 0, 0, 1], annotators, labels, weights="counts")
        >>> candidates.weights
        tensor([0.6667, 0.3333, 1.0000])
    """
    row, who, given = (np.asarray(column) for column in (rows, annotators, labels))
    if not (row.ndim == who.ndim == given.ndim == 1 and len(row) == len(who) == len(given) > 0):
        raise InputError(
            f"The votes have {row.shape} rows, {who.shape} annotators and {given.shape} labels: "
            "give three lists of equal length, with one entry per vote."
        )
    if row.dtype.kind not in "iu" or row.min() < 0:
        raise InputError(
            "The rows of the votes must be whole numbers from 0: number the examples in the order "
            "of the features."
        )
    written: list[Any] = given.tolist()
    names = tuple(sorted(set(written)) if classes is None else classes)
    if classes is None and given.dtype.kind in "iu":
        names = tuple(range(max(written) + 1 if n_classes is None else n_classes))
    vote = np.arange(len(written) + 1)
    numbers = names_to_numbers(vote, vote[:-1], written, names, "Vote {}".format).numbers
    workers, worker = np.unique(who, return_inverse=True)
    columns = drop_repeated_votes(row.astype(np.int64), worker.astype(np.int64), numbers)
    votes = AnnotatorVotes(*columns, tuple(map(str, workers)))
    if classes is None:
        warn_of_similar_names(names, votes.labels)
    return voted_candidates(votes, int(row.max()) + 1, names, rule, weights, "Example {}".format)
