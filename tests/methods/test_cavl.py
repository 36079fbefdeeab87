import torch

from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from support.problems import inside, problem


def test_the_candidate_with_the_largest_activation_value_is_the_target():
    method = METHODS["cavl"]()
    p = problem(method)
    z = p.outputs.logits[0].tolist()
    new = method.disambiguate(p.outputs, p.targets, p.candidates)
    for i in range(len(z)):
        best = max(inside(p.candidates, i), key=lambda j: abs(z[i][j] - 1) * z[i][j])
        assert new[i].tolist() == [float(j == best) for j in range(len(z[i]))]


def test_the_target_is_a_candidate_even_if_every_candidate_scores_negative():
    method = METHODS["cavl"]()
    logits = torch.tensor([[5.0, -1.0, -2.0, 4.0]])
    candidates = torch.tensor([[False, True, True, False]])
    new = method.disambiguate(Outputs((logits,), (logits,)), candidates / 2, candidates)
    assert new.tolist() == [[0, 1, 0, 0]]


def test_the_activation_value_is_not_the_logit():
    # |z − 1|·z is 0 at z = 1 and positive at 0.5, so the smaller logit wins here.
    method = METHODS["cavl"]()
    logits = torch.tensor([[1.0, 0.5]])
    candidates = torch.tensor([[True, True]])
    assert method.disambiguate(
        Outputs((logits,), (logits,)), candidates / 2, candidates
    ).tolist() == [[0, 1]]


def test_loss_is_the_cross_entropy_of_the_chosen_candidate():
    method = METHODS["cavl"]()
    p = problem(method)
    believed = method.disambiguate(p.outputs, p.targets, p.candidates)
    expected = torch.nn.functional.cross_entropy(p.outputs.logits[0], believed.argmax(1))
    torch.testing.assert_close(method.loss(p.outputs, believed, p.candidates), expected)
