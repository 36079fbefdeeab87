import math

import pytest
import torch
from torch import nn

from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import Classifier
from ltpll.rebalancers import REBALANCERS
from support.problems import N_CLASSES, N_FEATURES, problem, step_of


def attached_paco(**options):
    extra = EXTRAS["paco"](**{"queue": 20, **options})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        extra.attach(Classifier(nn.Identity(), nn.Linear(N_FEATURES, N_CLASSES)))
    return extra


def step_for(method, rebalancer=None, seed=0):
    p = problem(method, seed=seed)
    other = torch.randn(
        len(p.targets), N_FEATURES, generator=torch.Generator().manual_seed(seed + 9)
    )
    return p, step_of(p, rebalancer, views=(p.outputs.features[0], other))


@pytest.mark.parametrize("rebalancer", ["none", "oracle-la", "oracle-la-posthoc"])
@pytest.mark.parametrize("name", ["proden", "lw", "cavl", "corr"])
def test_the_term_is_the_published_formula_in_a_plain_loop(name, rebalancer):
    method = METHODS[name]()
    frequencies = torch.logspace(3, 0, N_CLASSES)
    part = REBALANCERS["none"]() if rebalancer == "none" else REBALANCERS[rebalancer](frequencies)
    extra = attached_paco(weight=2.0)
    extra.loss(
        method, step_for(method, part, seed=2)[1], None, None
    )  # so that the queue holds something
    held, held_labels = extra.memory.queue.vectors.clone(), extra.memory.queue.labels.tolist()
    p, step = step_for(method, part)
    term = float(extra.loss(method, step, None, None).detach())

    n = len(p.targets)
    labels = [
        max(range(N_CLASSES), key=lambda j: float(p.targets[i, j]) if p.candidates[i, j] else -1)
        for i in range(n)
    ]
    query = extra.memory.projector(p.outputs.features[0]).detach()
    key = extra.memory.projector_follower.network(step.batch.views[1])
    others, names = torch.cat([query, key, held]), [*labels, *labels, *held_labels]
    log_prior = (
        (frequencies / frequencies.sum()).log().tolist()
        if rebalancer == "oracle-la"
        else [0.0] * N_CLASSES
    )
    total = 0.0
    for i in range(n):
        classes = [float(p.outputs.logits[0][i, k]) + log_prior[k] for k in range(N_CLASSES)]
        compared = {
            j: float(query[i] @ others[j]) / 0.05
            for j, name in enumerate(names)
            if name >= 0 and j != i
        }
        log_total = math.log(sum(math.exp(value) for value in (*classes, *compared.values())))
        positives = [
            (1.0, classes[labels[i]]),
            *((0.01, value) for j, value in compared.items() if names[j] == labels[i]),
        ]
        total += sum(weight * (log_total - value) for weight, value in positives) / sum(
            weight for weight, _ in positives
        )
    assert term == pytest.approx(2 * total / n, rel=1e-4)


def test_without_examples_among_the_positives_and_the_rest_it_is_a_balanced_softmax():
    """With α = 0 and similarities near zero, the term is cross-entropy with more classes."""
    method = METHODS["proden"]()
    frequencies = torch.logspace(3, 0, N_CLASSES)
    oracle = REBALANCERS["oracle-la"](frequencies)
    extra = attached_paco(alpha=0.0, temperature=1e9)
    p, step = step_for(method, oracle)
    labels = p.targets.masked_fill(~p.candidates, -1).argmax(1)
    logits = p.outputs.logits[0] + (frequencies / frequencies.sum()).log()
    n = len(labels)
    others = torch.zeros(n, 2 * n - 1)  # every other example, and every second view
    expected = torch.nn.functional.cross_entropy(torch.cat([logits, others], dim=1), labels)
    torch.testing.assert_close(
        extra.loss(method, step, None, None).detach(), expected, atol=1e-5, rtol=1e-5
    )


def test_it_starts_when_targets_are_refined_and_only_its_projector_is_trained():
    extra = attached_paco()
    assert [extra.active(epoch) for epoch in range(3)] == [False, True, True]
    trained = {name for name, parameter in extra.named_parameters() if parameter.requires_grad}
    assert {name.rsplit(".", 2)[0] for name in trained} == {"memory.projector"}


@pytest.mark.parametrize(
    "options", [{"alpha": -1}, {"temperature": 0}, {"queue": 0}, {"momentum": 2}]
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="PaCO"):
        EXTRAS["paco"](**options)
