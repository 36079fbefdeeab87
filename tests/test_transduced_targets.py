import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.targets import initial_targets, transduce


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_the_two_most_believed_candidates_of_each_row_in_a_plain_loop(targets_on):
    g = torch.Generator().manual_seed(0)
    matrix = torch.rand(40, 6, generator=g) < 0.4
    matrix[torch.arange(40), torch.randint(6, (40,), generator=g)] = True
    candidates = Candidates.from_matrix(matrix)
    targets = initial_targets(candidates, targets_on)
    weights = torch.rand(40, 6, generator=g) + 0.01
    if targets_on == "candidates":
        weights = weights * matrix / (weights * matrix).sum(1, keepdim=True)
    targets[torch.arange(40)] = weights
    labels, confidence, runner_up, margin = transduce(targets, candidates)
    for i in range(40):
        inside = {j: float(weights[i, j]) for j in range(6) if matrix[i, j]}
        total = sum(inside.values())
        order = sorted(inside, key=lambda j: -inside[j])
        assert labels[i] == order[0]
        assert confidence[i] == pytest.approx(inside[order[0]] / total, rel=1e-5)
        second = order[1] if len(order) > 1 else order[0]
        assert runner_up[i] == second
        beside = inside[second] / total if len(order) > 1 else 0.0
        assert margin[i] == pytest.approx(inside[order[0]] / total - beside, abs=1e-6)


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_of_candidates_believed_as_much_the_lower_number_comes_first_as_in_the_labels(targets_on):
    candidates = Candidates.from_sets([{1, 3, 5}, {4}, {0, 2}], n_classes=6)
    targets = initial_targets(candidates, targets_on)
    labels, confidence, runner_up, margin = transduce(targets, candidates)
    assert labels.tolist() == targets.labels().tolist() == [1, 4, 0]
    assert runner_up.tolist() == [3, 4, 2]
    assert confidence.tolist() == pytest.approx([1 / 3, 1, 1 / 2])
    assert margin.tolist() == pytest.approx([0, 1, 0])
