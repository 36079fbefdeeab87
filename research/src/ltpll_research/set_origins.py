"""Origins of sets for experiments: annotators, scales, scenes, and sets that lose their label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.synthetic import check_class_numbers, crowd_votes
from ltpll.validation import in_range


def crowd_candidates(
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    seed: int,
    accuracies: Sequence[float] = (0.9, 0.75, 0.6),
    confusion: npt.ArrayLike | None = None,
) -> Candidates:
    """Draw candidate sets that hold the labels of several annotators and the true label.

    Args:
        labels: True class numbers.
        n_classes: The number of classes.
        seed: Seed of the random numbers.
        accuracies: How often each annotator is right.
        confusion: (C, C), for each true class the relative frequencies of the wrong labels; by
            default random, so that each class is confused with few others.

    Returns:
        Sets of at most one label more than there are annotators.

    Raises:
        InputError: An accuracy is not a probability, a label is out of range, or the confusion
            matrix does not fit.

    Examples:
        >>> crowd_candidates([0, 1, 2], n_classes=3, seed=0).max_size <= 4
        True
    """
    y = check_class_numbers(labels, n_classes)
    _, _, votes = crowd_votes(y, n_classes, seed=seed, annotators=accuracies, confusion=confusion)
    rows = np.concatenate([y[:, None], votes.reshape(len(y), -1)], axis=1)
    return Candidates.from_flat(np.arange(len(y) + 1) * rows.shape[1], rows.ravel(), n_classes)


def neighbour_candidates(
    labels: npt.ArrayLike, n_classes: int, *, seed: int, reach: int = 3
) -> Candidates:
    """Draw candidate sets of adjacent classes, as for ages or grades that are known roughly.

    Args:
        labels: True class numbers, in the order of the classes.
        n_classes: The number of classes.
        seed: Seed of the random numbers.
        reach: A set extends by up to 2 · `reach` classes to either side of the true class, `reach`
            on average.

    Returns:
        Sets of about 2 · `reach` + 1 adjacent classes, fewer near the first and the last class.

    Raises:
        InputError: A label is out of range, or `reach` is negative.

    Examples:
        >>> neighbour_candidates([5], n_classes=11, seed=0, reach=0).row(0)
        [5]
    """
    y = check_class_numbers(labels, n_classes)
    in_range(reach, "reach", 0)
    rng = np.random.default_rng(seed)
    first = np.maximum(y - rng.integers(0, 2 * reach + 1, len(y)), 0)
    last = np.minimum(y + rng.integers(0, 2 * reach + 1, len(y)), n_classes - 1)
    sizes = last - first + 1
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    numbers = np.repeat(first - indptr[:-1], sizes) + np.arange(indptr[-1])
    return Candidates.from_flat(indptr, numbers, n_classes)


def grouped_candidates(
    n_groups: int,
    prior: npt.ArrayLike,
    *,
    seed: int,
    objects: float = 3.0,
    repeats: npt.ArrayLike = 0.5,
    scenes: int = 10,
    concentration: float = 0.5,
) -> tuple[Candidates, npt.NDArray[np.int64]]:
    """Draw pictures with several objects, which share the classes of the picture as candidates.

    A picture shows some classes that are usual in its kind of scene, and of each class one object
    or more.

    Args:
        n_groups: The number of pictures.
        prior: (C,), how usual each class is, relatively.
        seed: Seed of the random numbers.
        objects: The number of classes that are drawn for a picture, at least 1, on average.
        repeats: How many further objects of a class a picture shows on average: one number, or one
            per class.
        scenes: The number of kinds of scenes.
        concentration: How much the scenes resemble the prior; small values make scenes of few
            classes.

    Returns:
        The candidates, with their `groups`, and the true labels. Rows of a picture are neighbours.

    Raises:
        InputError: A number is out of range.

    Examples:
        >>> candidates, labels = grouped_candidates(100, [4, 2, 1], seed=0)
        >>> bool(candidates.contains(torch.from_numpy(labels)).all())
        True
    """
    usual = np.asarray(prior, dtype=np.float64).ravel()
    if len(usual) < 2 or not (usual > 0).all():
        raise InputError("The prior must have a positive number for each of at least two classes.")
    for name, value in (("n_groups", n_groups), ("scenes", scenes), ("objects", objects)):
        in_range(value, name, 1)
    in_range(concentration, "concentration", 0, above=True)
    n_classes = len(usual)
    rng = np.random.default_rng(seed)
    further = np.broadcast_to(np.asarray(repeats, dtype=np.float64), (n_classes,))
    usual = usual / usual.sum()
    shape = np.maximum(concentration * n_classes * usual, 1e-3)
    kinds = rng.gamma(shape, size=(scenes, n_classes)) + 1e-12
    kinds /= kinds.sum(1, keepdims=True)
    kind = rng.integers(0, scenes, n_groups)
    drawn = 1 + rng.poisson(objects - 1, n_groups)
    group = np.repeat(np.arange(n_groups), drawn)
    edges = np.cumsum(kinds, axis=1)[kind[group]]
    classes = np.minimum((rng.random(len(group))[:, None] > edges).sum(1), n_classes - 1)
    shown = np.unique(group * n_classes + classes)
    group, classes = shown // n_classes, shown % n_classes
    # Geometric, since some pictures show very many objects of one class.
    times = rng.geometric(1 / (1 + further[classes]))
    labels, of_group = np.repeat(classes, times), np.repeat(group, times)
    sizes = np.bincount(group, minlength=n_groups)
    starts = np.cumsum(sizes) - sizes
    indptr = np.concatenate([[0], np.cumsum(sizes[of_group])])
    places = np.repeat(starts[of_group] - indptr[:-1], sizes[of_group]) + np.arange(indptr[-1])
    numbers = classes[places]
    candidates = Candidates.from_flat(indptr, numbers, n_classes).with_groups(of_group)
    return candidates, labels.astype(np.int64)


def remove_labels(
    candidates: Candidates, labels: npt.ArrayLike, share: float, *, seed: int
) -> Candidates:
    """Remove the true label from a share of the candidate sets, for sets that lack it.

    Args:
        candidates: The candidate sets.
        labels: True class numbers.
        share: The probability that a set loses its true label.
        seed: Seed of the random numbers.

    Returns:
        The sets without these labels; a set that would be empty gets a random wrong label.

    Raises:
        InputError: The share is not a probability.

    Examples:
        >>> sets = uniform_candidates([0, 1, 2], n_classes=3, ambiguity=0.5, seed=0)
        >>> remove_labels(sets, [0, 1, 2], 1.0, seed=0).contains(torch.tensor([0, 1, 2]))
        tensor([False, False, False])
    """
    in_range(share, "The share", 0, 1)
    y, n_classes = np.asarray(labels, dtype=np.int64), candidates.n_classes
    rng = np.random.default_rng(seed)
    lost = rng.random(len(y)) < share
    instead = (y + rng.integers(1, n_classes, len(y))) % n_classes
    numbers = candidates.labels.cpu().numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(y)), candidates.sizes.cpu().numpy())
    kept = ~(lost[rows] & (numbers == y[rows]))
    empty = np.flatnonzero(np.bincount(rows[kept], minlength=len(y)) == 0)
    rows = np.concatenate([rows[kept], empty])
    numbers = np.concatenate([numbers[kept], instead[empty]])
    order = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[order], np.arange(len(y) + 1))
    return Candidates.from_flat(indptr, numbers[order], n_classes, candidates.classes)
