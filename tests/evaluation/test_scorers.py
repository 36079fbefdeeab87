import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.evaluation.scorers import approximated_accuracy_score, approximated_balanced_accuracy_score, covering_rate_score
from support.refusals import refusal


def drawn(seed, n=50, classes=6):
    rng = np.random.default_rng(seed)
    matrix = rng.random((n, classes)) < 0.4
    matrix[np.arange(n), rng.integers(0, classes, n)] = True
    return matrix, rng.dirichlet(np.ones(classes), n)


@pytest.mark.parametrize("seed", range(3))
def test_both_scores_are_their_definitions_in_a_plain_loop(seed):
    matrix, probabilities = drawn(seed)
    candidates = Candidates.from_matrix(matrix)
    covered, approximated = 0.0, 0.0
    for row, p in zip(matrix, probabilities, strict=True):
        best = int(np.argmax(p))
        if row[best]:
            covered += 1
            approximated += p[best] / sum(p[j] for j in range(len(p)) if row[j])
    assert covering_rate_score(candidates, probabilities.argmax(1)) == pytest.approx(covered / len(matrix))
    assert approximated_accuracy_score(candidates, probabilities) == pytest.approx(approximated / len(matrix))


@pytest.mark.parametrize("seed", range(3))
def test_the_balanced_score_is_the_mean_of_expected_recalls_in_a_plain_loop(seed):
    matrix, probabilities = drawn(seed)
    matrix[:, 5] = False  # a class that no set holds does not count
    matrix[~matrix.any(1), 0] = True
    expected, found = [0.0] * 6, [0.0] * 6
    for row, p in zip(matrix, probabilities, strict=True):
        total = sum(p[j] for j in range(6) if row[j])
        for j in range(6):
            if row[j]:
                expected[j] += p[j] / total
                found[j] += p[j] / total * (int(np.argmax(p)) == j)
    recalls = [found[j] / expected[j] for j in range(5)]
    score = approximated_balanced_accuracy_score(Candidates.from_matrix(matrix, n_classes=6), probabilities)
    assert score == pytest.approx(sum(recalls) / 5)


def test_with_known_labels_the_balanced_score_is_balanced_accuracy():
    _, probabilities = drawn(0)
    labels = np.random.default_rng(1).integers(0, 6, len(probabilities))
    score = approximated_balanced_accuracy_score(Candidates.from_sets([[label] for label in labels], n_classes=6), probabilities)
    assert score == pytest.approx(balanced_accuracy_score(labels, probabilities.argmax(1)))


def test_with_known_labels_both_are_accuracy():
    _, probabilities = drawn(0)
    labels = np.random.default_rng(1).integers(0, 6, len(probabilities))
    candidates = Candidates.from_sets([[label] for label in labels], n_classes=6)
    accuracy = (probabilities.argmax(1) == labels).mean()
    assert covering_rate_score(candidates, probabilities.argmax(1)) == pytest.approx(accuracy)
    assert approximated_accuracy_score(candidates, probabilities) == pytest.approx(accuracy)


def test_a_large_set_makes_covering_easy_but_not_the_approximated_accuracy():
    candidates = Candidates.from_matrix(np.ones((4, 5), dtype=int))
    flat = np.full((4, 5), 0.2) + 1e-6 * np.eye(5)[:4]
    assert covering_rate_score(candidates, flat.argmax(1)) == 1.0
    assert approximated_accuracy_score(candidates, flat) == pytest.approx(0.2, abs=1e-4)


def test_predictions_for_other_rows_are_refused():
    candidates = Candidates.from_matrix(np.ones((4, 5), dtype=int))
    assert "3 predictions for 4" in refusal(lambda: covering_rate_score(candidates, np.zeros(3, dtype=int)), InputError)
