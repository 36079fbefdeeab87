import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.targets import initial_targets
from ltpll.transduction import believed


@pytest.mark.parametrize("covers", ["candidates", "classes"])
def test_the_two_most_believed_candidates_of_each_row_in_a_plain_loop(covers):
    g = torch.Generator().manual_seed(0)
    matrix = torch.rand(40, 6, generator=g) < 0.4
    matrix[torch.arange(40), torch.randint(6, (40,), generator=g)] = True
    candidates = Candidates.from_matrix(matrix)
    targets = initial_targets(candidates, covers)
    weights = torch.rand(40, 6, generator=g) + 0.01
    if covers == "candidates":
        weights = weights * matrix / (weights * matrix).sum(1, keepdim=True)
    targets[torch.arange(40)] = weights
    labels, confidence, runner_up, margin = believed(targets, candidates)
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
