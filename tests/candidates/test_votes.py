"""Votes weight the candidates as naive loops say, and better than counting."""

import math

import numpy as np
import pytest

from ltpll import PartialLabelClassifier, candidates_from_votes
from ltpll.candidates.votes import (
    EXAMPLES_OF_EACH_CLASS,
    LEAST_SHARE,
    MOST_ROUNDS,
    TRUST,
    USUAL_ACCURACY,
    VOTES_FOR_ACCURACY,
    VOTES_FOR_OWN_ACCURACY,
    VOTES_FOR_OWN_CONFUSION,
    AnnotatorVotes,
    vote_likelihoods,
)
from ltpll.errors import InputError
from ltpll.synthetic import crowd_votes, long_tail_subset


def rows_of(candidates):
    """The weight of each candidate by class, one dictionary per row."""
    flat = iter(candidates.weights.tolist())
    return [
        {candidates.classes[label]: next(flat) for label in candidates.row(i)}
        for i in range(len(candidates))
    ]


def naive_likelihoods(ballots, n_classes):
    """EM in plain Python; `ballots` has for each example the set of labels of each annotator."""
    annotators = {a for ballot in ballots for a in ballot}
    posterior = []
    for ballot in ballots:
        votes = [label for given in ballot.values() for label in given]
        posterior.append({c: votes.count(c) / len(votes) for c in sorted(set(votes))})
    for _ in range(MOST_ROUNDS):
        right, total = dict.fromkeys(annotators, 0.0), dict.fromkeys(annotators, 0.0)
        own, own_total, shared, shared_total = {}, {}, {}, {}
        for ballot, shares in zip(ballots, posterior, strict=True):
            for a, given in ballot.items():
                for c, share in shares.items():
                    total[a] += share
                    right[a] += share * (c in given)
                    if len(given) == 1:
                        (label,) = given
                        own[a, c, label] = own.get((a, c, label), 0) + share
                        own_total[a, c] = own_total.get((a, c), 0) + share
                        if label != c:
                            shared[c, label] = shared.get((c, label), 0) + share
                            shared_total[c] = shared_total.get(c, 0) + share
        overall = (sum(right.values()) + VOTES_FOR_ACCURACY * USUAL_ACCURACY) / (
            sum(total.values()) + VOTES_FOR_ACCURACY
        )
        pseudo = VOTES_FOR_OWN_ACCURACY
        accuracy = {
            a: min(max((right[a] + pseudo * overall) / (total[a] + pseudo), 1e-3), 1 - 1e-3)
            for a in annotators
        }
        prior = [
            EXAMPLES_OF_EACH_CLASS + sum(shares.get(c, 0) for shares in posterior)
            for c in range(n_classes)
        ]
        updated, likelihoods = [], []
        for ballot, shares in zip(ballots, posterior, strict=True):
            scores = {}
            for c in shares:
                scores[c] = 0.0
                for a, given in ballot.items():
                    k, r = len(given), accuracy[a]
                    if k > 1:
                        likelihood = r / k if c in given else (1 - r) / (n_classes - k)
                    else:
                        (label,) = given
                        confused = (shared.get((c, label), 0) + 0.5) / (
                            shared_total.get(c, 0) + 0.5 * (n_classes - 1)
                        )
                        mean = r if label == c else (1 - r) * confused
                        pseudo = VOTES_FOR_OWN_CONFUSION
                        likelihood = (own[a, c, label] + pseudo * mean) / (own_total[a, c] + pseudo)
                    scores[c] += math.log(likelihood)
            likelihoods.append(scores)
            exact = {c: math.exp(score) * prior[c] for c, score in scores.items()}
            updated.append({c: value / sum(exact.values()) for c, value in exact.items()})
        change = max(
            abs(new[c] - old[c]) for new, old in zip(updated, posterior, strict=True) for c in new
        )
        posterior = updated
        if change < 1e-4:
            break
    powers = [{c: math.exp(score) for c, score in scores.items()} for scores in likelihoods]
    return [{c: value / sum(row.values()) for c, value in row.items()} for row in powers]


@pytest.mark.parametrize("several", [0.0, 0.4])
def test_reliabilities_are_those_of_em_in_plain_python(several):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 60)
    rows, annotators, labels = crowd_votes(
        y, 5, seed=0, annotators=[0.9, 0.6, np.full((5, 5), 0.2), 0.7], per_row=3
    )
    more = rng.random(len(rows)) < several
    rows, annotators = (
        np.concatenate([rows, rows[more]]),
        np.concatenate([annotators, annotators[more]]),
    )
    labels = np.concatenate([labels, (labels[more] + rng.integers(1, 5, more.sum())) % 5])
    ballots = [{} for _ in y]
    for row, annotator, label in zip(
        rows.tolist(), annotators.tolist(), labels.tolist(), strict=True
    ):
        ballots[row].setdefault(annotator, set()).add(label)
    expected = [value for row in naive_likelihoods(ballots, 5) for _, value in sorted(row.items())]
    np.testing.assert_allclose(
        vote_likelihoods(AnnotatorVotes(rows, annotators, labels, ()), len(y), 5),
        expected,
        atol=1e-9,
    )
    smoothed = [
        dict(zip(sorted(row), row.values(), strict=True)) for row in naive_likelihoods(ballots, 5)
    ]
    smoothed = [
        {c: value**TRUST / sum(v**TRUST for v in row.values()) for c, value in row.items()}
        for row in smoothed
    ]
    smoothed = [
        {c: (value + LEAST_SHARE) / (1 + LEAST_SHARE * len(row)) for c, value in row.items()}
        for row in smoothed
    ]
    for got, wanted in zip(
        rows_of(candidates_from_votes(rows, annotators, labels, n_classes=5)), smoothed, strict=True
    ):
        assert got == pytest.approx(wanted, abs=1e-6)


def test_reliabilities_depend_neither_on_names_nor_on_the_order_of_the_votes():
    y = np.random.default_rng(1).integers(0, 4, 80)
    rows, annotators, labels = crowd_votes(y, 4, seed=1, annotators=[0.9, 0.5, 0.4])
    first = rows_of(candidates_from_votes(rows, annotators, labels, n_classes=4))
    order = np.random.default_rng(2).permutation(len(rows))
    named = np.asarray(["zoe", "ann", "bob"])[annotators]
    again = rows_of(
        candidates_from_votes(rows[order], named[order], np.asarray(list("dcba"))[labels][order])
    )
    for one, other in zip(first, again, strict=True):
        assert one == pytest.approx(
            {"dcba".index(label): weight for label, weight in other.items()}, abs=1e-6
        )


def test_labels_of_one_annotator_alone_weigh_the_same():
    """Whatever else the annotator said: nobody confirms or contradicts any of it."""
    sets = [[0, 1], [0, 2], [0, 1], [3], [3, 1], [0]]
    rows = [i for i, labels in enumerate(sets) for _ in labels]
    found = rows_of(
        candidates_from_votes(
            rows, ["ann"] * len(rows), [label for labels in sets for label in labels]
        )
    )
    for row, labels in zip(found, sets, strict=True):
        assert row == pytest.approx(dict.fromkeys(labels, 1 / len(labels)), abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_a_majority_prevails_where_too_few_votes_tell_annotators_apart(n_classes):
    rows, annotators = (
        [0, 0, 0, 1, 1, 1, 2, 2],
        ["ann", "bob", "cid", "ann", "bob", "cid", "bob", "cid"],
    )
    found = rows_of(
        candidates_from_votes(rows, annotators, [0, 1, 0, 1, 1, 0, 1, 1], n_classes=n_classes)
    )
    assert found[0][0] > 0.55
    assert found[1][1] > 0.55


def test_a_good_annotator_outweighs_two_bad_ones_who_happen_to_agree():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 2000)
    rows, annotators, labels = crowd_votes(
        y, 6, seed=0, annotators=[0.97, 0.95, np.full((6, 6), 1 / 6), np.full((6, 6), 1 / 6)]
    )
    votes = labels.reshape(-1, 4)
    outvoted = np.flatnonzero(
        (votes[:, 0] == y) & (votes[:, 1] != y) & (votes[:, 2] == votes[:, 3]) & (votes[:, 2] != y)
    )
    outvoted = outvoted[votes[outvoted, 1] != votes[outvoted, 2]]
    assert len(outvoted) > 5
    reliable = rows_of(candidates_from_votes(rows, annotators, labels))
    counted = rows_of(candidates_from_votes(rows, annotators, labels, weights="counts"))
    assert all(counted[i][y[i]] < counted[i][votes[i, 2]] for i in outvoted)
    assert all(reliable[i][y[i]] > reliable[i][votes[i, 2]] for i in outvoted)


def test_weights_are_likelihoods_that_do_not_depend_on_how_frequent_classes_are():
    """Equally good annotators count the same, though one class is ten times as frequent."""
    y = np.repeat([0, 1], [3000, 300])
    rows, annotators, labels = crowd_votes(y, 2, seed=0, annotators=[0.8, 0.8, 0.8], per_row=2)
    weights = np.asarray(
        [
            list(row.values())
            for row in rows_of(candidates_from_votes(rows, annotators, labels))
            if len(row) == 2
        ]
    )
    assert abs(weights[:, 0].mean() - 0.5) < 0.1


def test_weights_of_votes_recover_more_labels_than_a_majority_and_than_sets_without_weights():
    """Good and bad annotators, long-tailed classes."""
    rng = np.random.default_rng(0)
    pool = np.repeat(np.arange(5), 200)
    y = pool[long_tail_subset(pool, 10, seed=0)]
    x = (rng.normal(size=(len(y), 8)) + 2.2 * np.eye(5, 8)[y]).astype(np.float32)
    constant = np.tile(np.eye(5)[0], (5, 1))
    votes = crowd_votes(y, 5, seed=0, annotators=[0.85, 0.7, 0.4, constant])
    right = {}
    for how in ("reliability", "none"):
        sets = candidates_from_votes(*votes, weights=how)
        model = PartialLabelClassifier(
            method="proden",
            rebalancer="mean-target",
            epochs=20,
            batch_size=32,
            device="cpu",
            threads=1,
            random_state=0,
        )
        right[how] = model.fit(x, sets).transduce().labels == y
    shares = candidates_from_votes(*votes, weights="counts")
    ambiguous = (shares.sizes > 1).numpy()
    majority = np.asarray(
        [[c for c, share in row.items() if share == max(row.values())] for row in rows_of(shares)],
        dtype=object,
    )
    voted = np.asarray(
        [(label in best) / len(best) for label, best in zip(y, majority, strict=True)]
    )  # ties are broken at random
    assert right["reliability"][ambiguous].mean() > voted[ambiguous].mean() + 0.05
    assert right["reliability"][ambiguous].mean() > right["none"][ambiguous].mean() + 0.05


@pytest.mark.parametrize(
    ("votes", "options", "message"),
    [
        (([0, 1], [0], [0, 1]), {}, "three lists of equal length"),
        (([], [], []), {}, "three lists of equal length"),
        (([0, -1], [0, 0], [0, 1]), {}, "whole numbers from 0"),
        ((["a", "b"], [0, 0], [0, 1]), {}, "whole numbers from 0"),
        (([0, 2], [0, 0], [0, 1]), {}, "Example 1 has no votes"),
        (
            ([0, 1, 1], [0, 0, 1], [0, 1, 2]),
            {"rule": "votes-2"},
            "Example 0 has no label with at least 2 votes, and neither",
        ),
        (([0, 1], [0, 0], ["a", "b"]), {"classes": ["a", "c"]}, "Vote 1 has the candidate 'b'"),
        (([0, 1], [0, 0], [0, 7]), {"n_classes": 3}, "Vote 1 has the candidate 7"),
        (([0, 1], [0, 0], [0, 1]), {"weights": "best"}, "choose reliability, counts or none"),
        (([0, 1], [0, 0], [0, 1]), {"rule": "best"}, "is not a rule"),
    ],
)
def test_votes_that_do_not_fit_are_refused(votes, options, message):
    with pytest.raises(InputError, match=message):
        candidates_from_votes(*votes, **options)
