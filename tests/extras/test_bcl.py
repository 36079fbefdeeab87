import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.extras.bcl import balanced_contrast
from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from ltpll.models import Classifier
from support.problems import N_CLASSES, N_FEATURES, problem, step_of


def vectors_of(n, classes, width=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=g)
    return (
        normalize(torch.randn(n, width, generator=g), dim=1),
        labels,
        normalize(torch.randn(classes, width, generator=g), dim=1),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_published_formula_in_a_plain_loop(seed):
    vectors, labels, centres = vectors_of(14, 5, seed=seed)
    everything, names = torch.cat([vectors, centres]), [*labels.tolist(), *range(5)]
    total = 0.0
    for i in range(14):
        similarity = [float(vectors[i] @ other) / 0.1 for other in everything]
        denominator = 0.0
        for k in range(5):
            members = [j for j, name in enumerate(names) if name == k and j != i]
            denominator += sum(math.exp(similarity[j]) for j in members) / len(members)
        positives = [j for j, name in enumerate(names) if name == int(labels[i]) and j != i]
        total += sum(math.log(denominator) - similarity[j] for j in positives) / len(positives)
    assert float(balanced_contrast(vectors, labels, centres, 0.1)) == pytest.approx(
        total / 14, rel=1e-4
    )


def test_it_does_not_matter_how_often_an_example_of_another_class_repeats():
    vectors, labels, centres = vectors_of(8, 3)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    alone = balanced_contrast(vectors[:4], labels[:4], centres, 0.1)

    def of_the_first_four(repeats):
        """The mean loss of the first four examples when class 2, at its centre, is repeated."""
        many = torch.cat([vectors[:4], centres[2:].repeat(repeats, 1)])
        names = torch.cat([labels[:4], torch.full((repeats,), 2)])
        everyone = balanced_contrast(many, names, centres, 0.1) * (4 + repeats)
        # The examples of class 2 are identical: the loss of each, by the same formula, from a batch
        # in which it is the anchor.
        own = balanced_contrast(
            torch.cat([many[4:], many[:4]]), torch.cat([names[4:], names[:4]]), centres, 0.1
        ) * (4 + repeats)
        assert own == pytest.approx(float(everyone), rel=1e-5)
        anchor = many[4]
        logits = many @ anchor / 0.1
        mean = {k: logits[[j for j, name in enumerate(names) if name == k]] for k in (0, 1)}
        terms = [
            torch.cat([mean[k], (centres[k] @ anchor)[None] / 0.1]).exp().mean() for k in (0, 1)
        ]
        same = torch.tensor(1 / 0.1)
        return (everyone - repeats * (torch.log(sum(terms) + same.exp()) - same)) / 4

    for repeats in (1, 5, 50):
        assert float(of_the_first_four(repeats)) == pytest.approx(float(alone), rel=1e-3)


def attached_bcl(**options):
    extra = EXTRAS["bcl"](**options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        extra.attach(Classifier(nn.Identity(), nn.Linear(N_FEATURES, N_CLASSES)))
    return extra


@pytest.mark.parametrize("name", ["proden", "lw", "cavl", "corr"])
def test_the_term_compares_two_views_by_the_candidate_with_the_largest_target(name):
    method = METHODS[name]()
    p = problem(method)
    g = torch.Generator().manual_seed(4)
    features = (p.outputs.features[0], torch.randn(len(p.targets), N_FEATURES, generator=g))
    step = step_of(p._replace(outputs=Outputs((p.outputs.logits[0],) * 2, features)))
    extra = attached_bcl(weight=2.0)
    labels = torch.tensor(
        [
            max(
                range(N_CLASSES), key=lambda j: float(p.targets[i, j]) if p.candidates[i, j] else -1
            )
            for i in range(12)
        ]
    )
    vectors = torch.cat([extra.projector(one) for one in features])
    expected = 2 * balanced_contrast(
        vectors, torch.cat([labels, labels]), normalize(extra.centres, dim=1), 0.1
    )
    torch.testing.assert_close(extra.loss(method, step, None, None), expected)


def test_it_starts_when_targets_are_refined_and_has_its_own_parameters():
    extra = attached_bcl()
    assert [extra.active(epoch) for epoch in range(3)] == [False, True, True]
    assert {name.split(".")[0] for name, _ in extra.named_parameters()} == {"projector", "centres"}


@pytest.mark.parametrize("options", [{"weight": -1}, {"temperature": 0}, {"width": 0}])
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="BCL"):
        EXTRAS["bcl"](**options)
