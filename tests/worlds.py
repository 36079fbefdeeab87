"""What each process of a small world does; started by tests/test_distributed.py as a process of its own."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from ltpll.candidates import Candidates
from ltpll.distributed import World
from ltpll.evaluate import Truth
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.trainer import PartialLabelTrainer


def problem(n=45, images=False):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    sets = rng.random((n, 3)) < 0.4
    sets[np.arange(n), y] = True
    shape = (n, 3, 8, 8) if images else (n, 5)
    return rng.normal(size=shape) + y.reshape(n, *[1] * (len(shape) - 1)), Candidates.of(sets), y


def trainer(method, rebalancer, world, images=False, extras=(), **more):
    """In double precision; without random views, so that nothing depends on who draws what."""
    model = (
        build_model("small-cnn", 0, n_classes=3, n_channels=3) if images else build_model("mlp", 0, n_inputs=5, n_classes=3, hidden=(7,))
    )
    context = {"n_features": model.head.in_features, "n_classes": 3, "class_frequencies": [20, 15, 10]}
    return PartialLabelTrainer(
        model,
        METHODS.create(method),
        REBALANCERS.create(rebalancer, context),
        [EXTRAS.create(name) for name in extras],
        epochs=3,
        batch_size=10,
        lr=0.2,
        drop_last=False,
        device="cpu",
        precision="float64",
        world=world,
        **more,
    )


def figures(test):
    return [test["accuracy"], *test["per_class"], *test["mean_prediction"]]


def state(trained):
    return {
        "targets": trained.targets.values,
        **{f"rebalancer.{k}": v for k, v in trained.rebalancer.state_dict().items()},
        **{f"model.{k}": v for k, v in trained.model.state_dict().items()},
        "losses": torch.tensor([record["loss"] for record in trained.history], dtype=torch.float64),
        "judged": torch.tensor([figures(record["test"]) for record in trained.history], dtype=torch.float64),
    }


def main():
    """Arguments: folder, rank, size, and the trainings to carry out, as JSON."""
    folder, rank, size, cases = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=size, timeout=timedelta(seconds=60))
    world = World(rank, size)
    pieces(world, folder)
    for number, options in enumerate(cases):
        x, candidates, y = problem(images=options.get("images", False))
        trained = trainer(world=world, **options).fit(x, candidates, measure=Truth(x, y, y))
        predicted = trained.outputs(x).logits[0]
        torch.save({**state(trained), "predicted": predicted}, folder / f"{number}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def pieces(world, folder):
    """All that a world offers, checked here against what every process can work out for itself."""
    for n in (world.size, 7, 10):
        whole = torch.arange(3.0 * n).view(n, 3)
        assert torch.equal(world.rows(whole[world.part(n)], n), whole)
        mean = (whole[world.part(n)].mean() * world.weight(n)) / world.size
        torch.testing.assert_close(world.total(mean), whole.mean())
    assert world.agreed(world.rank) == 0
    x = torch.tensor(float(world.rank + 1), requires_grad=True)
    y = world.summed(x * x) * (world.rank + 1)
    y.backward()
    # The derivative of all processes' results by this one's x.
    assert float(x.grad) == 2 * (world.rank + 1) * sum(range(1, world.size + 1))
    (folder / f"{world.rank}.ok").write_text("")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
