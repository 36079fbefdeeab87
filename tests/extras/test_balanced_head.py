"""The balanced head: its loss in plain Python, and what it predicts."""

import math

import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.extras import BalancedHead
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS
from ltpll.training.trainer import PartialLabelTrainer
from support.problems import attached, between_epochs, problem, step_of


@pytest.mark.parametrize("name", ["proden", "corr", "lw"])
def test_the_loss_is_the_cross_entropy_of_its_logits_plus_the_log_of_the_mean_target(name):
    method = METHODS[name]()
    p = problem(method)
    extra = attached(BalancedHead(weight=0.5))
    extra.start_training(between_epochs(p, method))
    total, rows = 0.0, []
    for i in range(len(p.targets)):
        inside = [
            float(p.targets[i, j]) * bool(p.candidates[i, j]) for j in range(p.targets.shape[1])
        ]
        rows.append([value / sum(inside) for value in inside])
    mean = [
        max(sum(row[j] for row in rows) / len(rows), 0.5 / len(rows)) for j in range(len(rows[0]))
    ]
    for features in p.outputs.features:
        for row, feature in zip(rows, features, strict=True):
            z = (extra.head.weight @ feature + extra.head.bias).tolist()
            shifted = [value + math.log(share) for value, share in zip(z, mean, strict=True)]
            normaliser = math.log(sum(math.exp(value) for value in shifted))
            total -= sum(
                w * (value - normaliser) for w, value in zip(row, shifted, strict=True)
            ) / len(rows)
    expected = 0.5 * total / len(p.outputs.features)
    assert float(extra.loss(method, step_of(p), None, None).detach()) == pytest.approx(
        expected, rel=1e-5
    )


def test_balanced_predictions_come_from_the_head_and_others_do_not():
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    candidates = Candidates.of([[i % 3, (i + i // 7) % 3] for i in range(60)])
    extra = BalancedHead()
    model = build_model("mlp", 0, n_inputs=2, n_classes=3, hidden=(8,))
    trainer = PartialLabelTrainer(
        model, METHODS["proden"](), RECORDS(), [extra], epochs=3, batch_size=20, device="cpu"
    )
    before = [parameter.clone() for parameter in extra.parameters()]
    trainer.fit(x, candidates)
    assert all(
        not torch.equal(old, new) for old, new in zip(before, extra.parameters(), strict=True)
    )
    logits, features = model.eval()(x)
    torch.testing.assert_close(trainer.logits(x), extra.head(features).detach())
    torch.testing.assert_close(trainer.logits(x, goal="accuracy"), logits.detach())
