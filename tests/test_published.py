"""Whole updates against the published arithmetic, written out in plain Python: CORR with RECORDS
and mixup, three steps in a row.
"""

import math

import pytest
import torch

from ltpll.extras import EXTRAS
from ltpll.interfaces import Batch, Outputs
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from support.problems import attached, inside, naive_softmax, problem, step_of


def corr_loss(views: list[list[list[float]]], targets: list[list[float]]) -> float:
    total = 0.0
    for i, target in enumerate(targets):
        for view in views:
            probability = naive_softmax(view[i])
            for p, w in zip(probability, target, strict=True):
                total += -math.log(abs(1 - p) + 1e-9) if w == 0 else w * (math.log(w) - math.log(p))
    return total / len(targets)


def debiased_targets(views, candidates, log_prior) -> list[list[float]]:
    """The authors' order: softmax of each debiased view, product on the candidates, square root,
    normalise.
    """
    rows = []
    for i in range(len(views[0])):
        debiased = [
            naive_softmax([z - b for z, b in zip(view[i], log_prior, strict=True)])
            for view in views
        ]
        kept = inside(candidates, i)
        product = [
            math.sqrt(debiased[0][j] * debiased[1][j]) if j in kept else 0.0
            for j in range(len(log_prior))
        ]
        rows.append([value / sum(product) for value in product])
    return rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mixed", [False, True], ids=["CORR+RECORDS", "CORR+RECORDS+mixup"])
def test_three_updates_equal_the_published_arithmetic(seed, mixed):
    method, records, mixup = (
        METHODS["corr"](),
        attached(REBALANCERS["records"]()),
        EXTRAS["mixup"](),
    )
    mean_feature = [0.0] * 5
    for step in range(3):
        p = problem(method, seed=100 * seed + step)
        views = [view.tolist() for view in p.outputs.logits]
        batch = Batch(p.outputs.features, p.targets, p.candidates)

        loss = method.loss(p.outputs, p.targets, p.candidates)
        expected_loss = corr_loss(views, p.targets.tolist())
        if mixed:
            own = mixup.inputs(batch, torch.Generator().manual_seed(seed))
            said = problem(method, seed=100 * seed + step + 50).outputs
            loss = loss + mixup.loss(method, step_of(p), own, said)
            expected_loss += 1.0 * corr_loss(
                [view.tolist() for view in said.logits], own.targets.tolist()
            )
        assert float(loss) == pytest.approx(expected_loss, abs=1e-5 * max(1, abs(expected_loss)))

        records.observe(p.outputs, p.head)
        features = [view.tolist() for view in p.outputs.features]
        n = len(features[0])
        batch_mean = [
            sum((features[0][i][d] + features[1][i][d]) / 2 for i in range(n)) / n for d in range(5)
        ]
        mean_feature = [
            0.9 * old + 0.1 * new for old, new in zip(mean_feature, batch_mean, strict=True)
        ]
        weight, bias = p.head.weight.tolist(), p.head.bias.tolist()
        logits = [
            sum(w * f for w, f in zip(row, mean_feature, strict=True)) + b
            for row, b in zip(weight, bias, strict=True)
        ]
        log_prior = [math.log(value + 1e-9) for value in naive_softmax(logits)]

        new = method.disambiguate(
            records.adjust(p.outputs, "targets", p.head), p.targets, p.candidates
        )
        expected = torch.tensor(debiased_targets(views, p.candidates, log_prior))
        torch.testing.assert_close(new, expected, atol=1e-5, rtol=0)
        adjusted = records.adjust(p.outputs, "prediction", p.head).logits[0]
        torch.testing.assert_close(
            adjusted, p.outputs.logits[0] - torch.tensor(log_prior), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("seed", range(3))
def test_methods_leave_their_inputs_alone(seed):
    for name in METHODS:
        method = attached(METHODS[name]())
        p = problem(method, seed=seed)
        copies = [z.clone() for z in (*p.outputs.logits, p.targets, p.candidates)]
        method.loss(p.outputs, p.targets, p.candidates)
        method.disambiguate(Outputs(p.outputs.logits, p.outputs.features), p.targets, p.candidates)
        for before, after in zip(copies, (*p.outputs.logits, p.targets, p.candidates), strict=True):
            assert torch.equal(before, after)
