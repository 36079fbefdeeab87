"""Synthetic data: long tails, candidate sets around true labels, and two small data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.cells import PLAIN_ROW, CollectedSets
from ltpll.candidates.parsing import CLASS_LIMIT
from ltpll.errors import InputError
from ltpll.formatting import counted
from ltpll.validation import as_labels, in_range

__all__ = [
    "class_sizes",
    "crowd_votes",
    "example_tables",
    "four_squares",
    "instance_candidates",
    "load_digits_split",
    "long_tail_subset",
    "superclass_candidates",
    "top_k_candidates",
    "uniform_candidates",
]

VALUES_PER_PASS = 1 << 22  # limits the memory of draws for all rows and classes
CORNERS = ((-1.0, -1.0), (0.0, -1.0), (-1.0, 0.0), (0.0, 0.0))  # of the four squares
# Of the example tables; in one row of a hundred, none of the three annotators is right.
NAMES = np.asarray(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
IMBALANCE, LARGEST, NEW_PER_CLASS = 10, 120, 10
ACCURACIES = (0.9, 0.75, 0.6)

RandomNumbers = np.random.Generator | np.random.RandomState
Columns = dict[str, Any]
Numbers = npt.NDArray[np.int64]


def check_class_numbers(labels: npt.ArrayLike, n_classes: int = CLASS_LIMIT) -> Numbers:
    """Labels as an array; refused unless they are class numbers below `n_classes`."""
    return np.asarray(as_labels(labels, "true", n_classes))


# ---- long tails ----------------------------------------------------------------------------------


def class_sizes(largest: int, n_classes: int, imbalance: float) -> Numbers:
    """Compute long-tailed class sizes, n_c = int(largest · (1/ρ)^(c/(C−1))).

    Args:
        largest: The size of class 0.
        n_classes: The number of classes C.
        imbalance: The size of the first class over that of the last, ρ.

    Returns:
        (C,) sizes.

    Raises:
        InputError: There is only one class, the imbalance is below 1, or a class would be empty.

    Examples:
        >>> class_sizes(100, 3, imbalance=100)
        array([100,  10,   1])
    """
    if n_classes < 2:
        raise InputError(f"There is only {n_classes} class: a long tail needs at least two.")
    in_range(imbalance, "The imbalance", 1)
    # Python floats, as in the published code: numpy's power can round across an integer.
    shares = [(1 / imbalance) ** (c / (n_classes - 1)) for c in range(n_classes)]
    sizes = np.asarray([int(largest * share) for share in shares], dtype=np.int64)
    if sizes[-1] < 1:
        which = f"With {counted(largest, 'example')} in the largest class, imbalance {imbalance}"
        raise InputError(f"{which} leaves the smallest class empty: lower it.")
    return sizes


def long_tail_subset(
    labels: npt.ArrayLike, imbalance: float, *, seed: int, largest: int | None = None
) -> Numbers:
    """Choose a random subset whose class sizes decrease exponentially.

    Args:
        labels: Class numbers from 0, without gaps.
        imbalance: The size of the first class over that of the last.
        seed: Seed of the choice.
        largest: The size of class 0; by default, the largest for which every class has enough
            examples.

    Returns:
        Row numbers in ascending order.

    Raises:
        InputError: A class has no examples, or fewer than the long tail needs.

    Examples:
        >>> long_tail_subset([0] * 9 + [1] * 9, imbalance=9, seed=0).shape
        (10,)
    """
    y = check_class_numbers(labels)
    available = np.bincount(y)
    if not available.all():
        which = f"Class {int(np.argmin(available))} has no examples"
        raise InputError(f"{which}: number the classes from 0 without gaps.")
    if largest is None:
        # int(largest · share) <= available as long as largest · share < available + 1.
        share = (1 / imbalance) ** (np.arange(len(available)) / max(len(available) - 1, 1))
        largest = int(np.ceil(((available + 1) / share).min()))
        while largest > 1 and (class_sizes(largest, len(available), imbalance) > available).any():
            largest -= 1
    sizes = class_sizes(largest, len(available), imbalance)
    short = np.flatnonzero(sizes > available)
    if len(short):
        c = int(short[0])
        which = f"Class {c} has {counted(available[c], 'example')}, but the long tail needs"
        raise InputError(f"{which} {sizes[c]}: lower `largest`.")
    return np.sort(shuffled_subset(y, sizes, np.random.default_rng(seed)))


def shuffled_subset(y: npt.NDArray[Any], sizes: Iterable[int], rng: RandomNumbers) -> Numbers:
    """Class by class, the first rows of a random order of its examples."""
    rows = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(sizes)]
    return np.concatenate(rows).astype(np.int64)


# ---- candidate sets ------------------------------------------------------------------------------


def uniform_candidates(
    labels: npt.ArrayLike, n_classes: int, ambiguity: float, *, seed: int
) -> Candidates:
    """Draw candidate sets in which every wrong label joins independently with the same probability.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        ambiguity: The probability q that a wrong label joins a set.
        seed: Seed of the random numbers.

    Returns:
        Sets that contain the true label; some may contain nothing else.

    Raises:
        InputError: The ambiguity is not a probability, or a label is out of range.

    Examples:
        >>> uniform_candidates([0, 1, 2], n_classes=3, ambiguity=0.5, seed=0).n_classes
        3
    """
    return join_labels(labels, n_classes, ambiguity, np.random.default_rng(seed))


def superclass_candidates(
    labels: npt.ArrayLike,
    superclass: npt.ArrayLike,
    ambiguity: float,
    *,
    seed: int,
    factor: float = 8.0,
    only: bool = False,
) -> Candidates:
    """Draw candidate sets in which labels of the true superclass join more often.

    Args:
        labels: True class numbers.
        superclass: The superclass of each class.
        ambiguity: The probability q that a label of another superclass joins a set.
        seed: Seed of the random numbers.
        factor: Labels of the same superclass join with probability `factor` · q; 8 is the paper's
            CIFAR-100-LT-NU.
        only: Whether labels of the same superclass join with probability q instead, and no others,
            as in CIFAR-100H.

    Returns:
        Sets that contain the true label.

    Raises:
        InputError: A probability is above 1, or a label is out of range.

    Examples:
        >>> superclass_candidates([0, 3], superclass=[0, 0, 1, 1], ambiguity=0.1, seed=0).n_classes
        4
    """
    group, rng = np.asarray(superclass), np.random.default_rng(seed)
    return join_labels(labels, len(group), ambiguity, rng, group, 1.0 if only else factor, only)


def join_labels(
    labels: npt.ArrayLike,
    n_classes: int,
    ambiguity: float,
    rng: RandomNumbers,
    superclass: npt.NDArray[Any] | None = None,
    factor: float = 8.0,
    only: bool = False,
) -> Candidates:
    """Draw the sets of `uniform_candidates` or `superclass_candidates`, in chunks of rows."""
    outside = in_range(ambiguity, "The ambiguity", 0, 1)
    probability = np.broadcast_to(outside, (n_classes, n_classes))  # (true, other)
    if superclass is not None:
        inside = in_range(factor * ambiguity, "The ambiguity inside a superclass", 0, 1)
        outside = 0.0 if only else outside
        probability = np.where(superclass[:, None] == superclass[None, :], inside, outside)
    y = check_class_numbers(labels, n_classes)
    return _drawn_sets(y, n_classes, rng, lambda rows: probability[y[rows]])


def _drawn_sets(
    y: Numbers,
    n_classes: int,
    rng: RandomNumbers,
    probabilities: Callable[[slice], npt.NDArray[Any]],
) -> Candidates:
    """Sets of the true label and others, which join with their probabilities in rows of a slice."""
    sets = CollectedSets(PLAIN_ROW)
    chunk = max(1, VALUES_PER_PASS // n_classes)
    for start in range(0, len(y), chunk):
        part = y[start : start + chunk]
        joined = rng.random((len(part), n_classes)) < probabilities(slice(start, start + chunk))
        joined[np.arange(len(part)), part] = True
        rows, numbers = np.nonzero(joined)
        sets.add_codes(rows, numbers, len(part))
    found = sets.joined(())
    return Candidates.from_flat(found.indptr, found.codes, n_classes)


def top_k_candidates(
    labels: npt.ArrayLike, n_classes: int, k: int, *, seed: int, signal: float = 2.0
) -> Candidates:
    """Draw candidate sets that hold the k labels which a model finds most likely.

    The scores of the labels are those of a model whose classes resemble each other: a random
    symmetric resemblance with the true class, plus noise for each example, plus `signal` for the
    true class. Where it is not among the k best, it replaces the last of them.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        k: The number of candidates.
        seed: Seed of the random numbers.
        signal: How much the score of the true class is raised.

    Returns:
        Sets of k labels that contain the true label.

    Raises:
        InputError: `k` is not between 1 and the number of classes, or a label is out of range.

    Examples:
        >>> top_k_candidates([0, 1, 2], n_classes=5, k=2, seed=0).sizes
        tensor([2, 2, 2], dtype=torch.int32)
    """
    y = check_class_numbers(labels, n_classes)
    in_range(k, "k", 1, n_classes)
    rng = np.random.default_rng(seed)
    resemblance = rng.standard_normal((n_classes, n_classes))
    resemblance = (resemblance + resemblance.T) / np.sqrt(2)
    best = np.empty((len(y), k), dtype=np.int64)
    chunk = max(1, VALUES_PER_PASS // n_classes)
    for start in range(0, len(y), chunk):
        part, chosen = y[start : start + chunk], best[start : start + chunk]
        scores = resemblance[part] + rng.standard_normal((len(part), n_classes))
        scores[np.arange(len(part)), part] += signal
        chosen[:] = np.argsort(-scores, axis=1)[:, :k]
        missing = ~(chosen == part[:, None]).any(1)
        chosen[missing, -1] = part[missing]
    return Candidates.from_flat(np.arange(len(y) + 1) * k, best.ravel(), n_classes)


def instance_candidates(
    labels: npt.ArrayLike,
    n_classes: int,
    model: Any,
    *,
    seed: int,
    features: Any = None,
    rate: float | None = 0.4,
    superclass: npt.ArrayLike | None = None,
) -> Candidates:
    """Draw candidate sets that depend on the example: a wrong label joins if a model finds it
    likely.

    With the model's probabilities p, the share of a wrong label is r_j = p_j / max p over the wrong
    labels, and that of the true one zero. The shares are divided by their mean over the classes and
    multiplied by `rate`, and each label joins with its share, or 1 if that is less.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        model: The probabilities of a model that was trained on true labels, (N, C), or a fitted
            scikit-learn classifier of class numbers.
        seed: Seed of the random numbers.
        features: What a classifier is given, one row per label.
        rate: About the number of wrong labels in a set, as a share of all classes; None leaves the
            shares as they are, so that the likeliest wrong label always joins.
        superclass: The superclass of each class: only labels of the same one join, and the mean is
            taken over it.

    Returns:
        Sets that contain the true label.

    Raises:
        InputError: The probabilities, the rate or the labels cannot be used.

    Examples:
        >>> digits = load_digits_split(seed=0)
        >>> X, y = digits.x_pool.reshape(-1, 64), digits.y_pool
        >>> from sklearn.naive_bayes import GaussianNB
        >>> sets = instance_candidates(y, 10, GaussianNB().fit(X, y), features=X, seed=0)
        >>> len(sets) == len(y)
        True
    """
    y = check_class_numbers(labels, n_classes)
    if hasattr(model, "predict_proba"):
        p = np.zeros((len(y), n_classes))
        p[:, check_class_numbers(model.classes_, n_classes)] = model.predict_proba(features)
    else:
        p = np.asarray(model, dtype=np.float64)
    if p.shape != (len(y), n_classes) or not (np.isfinite(p).all() and (p >= 0).all()):
        which = f"The probabilities of shape {p.shape} are not those of {len(y)} examples and"
        raise InputError(f"{which} {n_classes} classes: give finite ones, none below zero.")
    in_range(1.0 if rate is None else rate, "rate", 0)
    group = np.zeros(n_classes) if superclass is None else np.asarray(superclass)
    if group.shape != (n_classes,):
        raise InputError(f"There are {n_classes} classes: give the superclass of each.")

    def shares(rows: slice) -> npt.NDArray[Any]:
        true = y[rows]
        allowed = group[true][:, None] == group[None, :]
        wrong = np.where(allowed & (np.arange(n_classes) != true[:, None]), p[rows], 0.0)
        wrong /= np.maximum(wrong.max(1, keepdims=True), np.finfo(float).tiny)
        if rate is not None:
            mean = wrong.sum(1, keepdims=True) / allowed.sum(1, keepdims=True)
            wrong *= rate / np.maximum(mean, 1 / (2 * n_classes))  # at least twice as large, or 0
        return wrong

    return _drawn_sets(y, n_classes, np.random.default_rng(seed), shares)


def crowd_votes(
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    seed: int,
    annotators: Sequence[float | npt.ArrayLike] = ACCURACIES,
    confusion: npt.ArrayLike | None = None,
    per_row: int | None = None,
    misleading: float = 0.0,
) -> tuple[Numbers, Numbers, Numbers]:
    """Draw the labels that several annotators give each example.

    The true label may be missing among them.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        seed: Seed of the random numbers.
        annotators: How often each annotator is right, or (C, C) probabilities of the labels that an
            annotator gives to each class.
        confusion: (C, C), for each true class the relative frequencies of the wrong labels; by
            default random, so that each class is confused with few others.
        per_row: The number of annotators of each example, chosen at random; by default all of them.
        misleading: The share of the examples that are easily taken for one other class, and get its
            label in six of ten votes.

    Returns:
        The row, the annotator and the label of each vote, for `ltpll.candidates_from_votes`.

    Raises:
        InputError: A number is out of range, or a matrix does not fit.

    Examples:
        >>> rows, annotators, votes = crowd_votes([0, 1, 2], n_classes=3, seed=0)
        >>> len(votes)
        9
    """
    y = check_class_numbers(labels, n_classes)
    rng = np.random.default_rng(seed)
    in_range(len(annotators), "The number of annotators", 1)
    in_range(per_row or 1, "per_row", 1, len(annotators))
    in_range(misleading, "misleading", 0, 1)
    if confusion is None:
        wrong = rng.dirichlet(np.full(n_classes, 0.3), n_classes)
    else:
        wrong = np.array(confusion, dtype=np.float64)
    kinds = [np.asarray(annotator, dtype=np.float64) for annotator in annotators]
    for matrix in (wrong, *(kind for kind in kinds if kind.ndim)):
        right = matrix.shape == (n_classes, n_classes) and bool((matrix >= 0).all())
        if not right or not (matrix is wrong or np.allclose(matrix.sum(1), 1)):
            which = f"A matrix of shape {matrix.shape} does not say which labels annotators give"
            raise InputError(f"{which}: give {n_classes} × {n_classes} probabilities.")
    np.fill_diagonal(wrong, 0.0)
    totals = wrong.sum(1, keepdims=True)
    wrong = np.where(totals > 0, wrong, 1 - np.eye(n_classes))
    wrong = wrong / wrong.sum(1, keepdims=True)
    columns = []
    for kind in kinds:
        edges = np.cumsum(kind if kind.ndim else wrong, axis=1)
        drawn = np.minimum((rng.random(len(y))[:, None] > edges[y]).sum(1), n_classes - 1)
        if kind.ndim == 0:
            in_range(float(kind), "The accuracy of an annotator", 0, 1)
            drawn = np.where(rng.random(len(y)) < kind, y, drawn)
        columns.append(drawn)
    given = np.stack(columns, axis=1)
    taken_for = (y + rng.integers(1, n_classes, len(y))) % n_classes
    misled = (rng.random(len(y)) < misleading)[:, None] & (rng.random(given.shape) < 0.6)
    given = np.where(misled, taken_for[:, None], given)
    chosen = rng.random(given.shape).argsort(1) < (per_row or len(annotators))
    rows, who = np.nonzero(chosen)
    return rows, who, given[chosen]


# ---- data sets -----------------------------------------------------------------------------------


def four_squares(
    sizes: Sequence[int], *, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Draw points of four classes, each uniform on one quarter of the square [−1, 1]².

    Args:
        sizes: The number of points of each class.
        seed: Seed of the random numbers.

    Returns:
        Points (N, 2) and labels (N,), ordered by class.

    Raises:
        InputError: There are not four sizes.

    Examples:
        >>> x, y = four_squares([50, 20, 10, 5], seed=0)
        >>> x.shape
        (85, 2)
    """
    if len(sizes) != 4:
        raise InputError(f"There are {len(sizes)} sizes for four squares: give one per class.")
    rng = np.random.default_rng(seed)
    corners = zip(CORNERS, sizes, strict=True)
    points = [np.asarray(corner) + rng.random((n, 2)) for corner, n in corners]
    labels = np.repeat(np.arange(4), sizes).astype(np.int64)
    return np.concatenate(points).astype(np.float32), labels


class DigitsSplit(NamedTuple):
    """Images (N, 1, 8, 8), standardised with the pool's statistics, and their labels."""

    x_pool: npt.NDArray[np.float32]
    y_pool: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.float32]
    y_test: npt.NDArray[np.int64]


def load_digits_split(*, seed: int, test_per_class: int = 50) -> DigitsSplit:
    """Load scikit-learn's handwritten digits and split off a random balanced test set.

    Args:
        seed: Seed of the split.
        test_per_class: Test images per digit.

    Returns:
        The test set, and all other images as the pool from which to draw a long-tailed subset.

    Raises:
        InputError: There are fewer images of a digit than `test_per_class`.

    Examples:
        >>> load_digits_split(seed=0).x_test.shape
        (500, 1, 8, 8)
    """
    from sklearn.datasets import load_digits  # as slow to import as torch

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    in_range(test_per_class, "test_per_class", 0, int(np.bincount(labels).min()))
    rng = np.random.default_rng(seed)
    per_class = [rng.permutation(np.flatnonzero(labels == c))[:test_per_class] for c in range(10)]
    test = np.sort(np.concatenate(per_class))
    pool = np.setdiff1d(np.arange(len(labels)), test)
    mean, std = images[pool].mean(), images[pool].std()
    images = (images - mean) / std
    return DigitsSplit(images[pool], labels[pool], images[test], labels[test])


class ExampleTables(NamedTuple):
    """The columns of a table to train on, and of a table of new examples."""

    train: Columns
    new: Columns


def example_tables(*, seed: int = 0) -> ExampleTables:
    """Draw the example tables: the candidates are the labels of three annotators.

    Classes are long-tailed, from 120 zeros to 12 nines. Features are the 64 pixels. A few sets lack
    the true label, since no annotator was right.

    Args:
        seed: Seed of the rows and of the annotators.

    Returns:
        Columns `id`, `candidates`, `label` (the truth) and the pixels; and `id` and the pixels of
        new digits, ten of each class.

    Examples:
        >>> sorted(example_tables().train)[:3]
        ['candidates', 'id', 'label']
    """
    split = load_digits_split(seed=seed, test_per_class=NEW_PER_CLASS)
    chosen = np.sort(long_tail_subset(split.y_pool, IMBALANCE, seed=seed, largest=LARGEST))
    y = split.y_pool[chosen]
    rows, _, votes = crowd_votes(y, len(NAMES), seed=seed)
    sets = ["|".join(NAMES[np.unique(votes[rows == row])]) for row in range(len(y))]
    ids = [f"d{row:04d}" for row in range(len(y))]
    train = {"id": ids, "candidates": sets, "label": NAMES[y].tolist()}
    new = {"id": [f"n{row:04d}" for row in range(len(split.y_test))]}
    images = _pixel_columns(split.x_pool[chosen]), _pixel_columns(split.x_test)
    return ExampleTables(train | images[0], new | images[1])


def _pixel_columns(images: Any) -> Columns:
    flat = images.reshape(len(images), -1).round(4)
    return {f"pixel_{place // 8}{place % 8}": flat[:, place] for place in range(flat.shape[1])}
