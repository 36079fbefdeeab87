"""What each process of a distributed training does in tests/training/test_distributed.py, which
starts several of them."""

import json
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist

from ltpll.candidates import Candidates
from ltpll.errors import CheckpointWarning
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.training import distributed, inputs, row_blocks
from ltpll.training.callbacks import Checkpoint
from ltpll.training.checkpoint import previous_checkpoint
from ltpll.training.distributed import World, is_loss_of_a_process
from ltpll.training.signals import exit_on_signals
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import ImageViews, Jitter, Views
from support.purifying import Purifying


def problem(images=False, n=45):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    sets = rng.random((n, 3)) < 0.4
    sets[np.arange(n), y] = True
    if images:
        x = (100 + 40 * y.reshape(n, 1, 1, 1) + rng.integers(-60, 60, (n, 3, 8, 8))).astype(
            np.uint8
        )
    else:
        x = rng.normal(size=(n, 5)) + y[:, None]
    return x, Candidates.of(sets), y


def trainer(
    method, rebalancer, world, images=False, extras=(), poisoned=False, chosen=None, **more
):
    """In double precision, with random views; `chosen` are options of the method."""
    model = build_model("mlp", 0, n_inputs=192 if images else 5, n_classes=3, hidden=(7,))
    model.double()
    context = {
        "n_features": model.head.in_features,
        "n_classes": 3,
        "class_frequencies": [20, 15, 10],
    }
    views = (
        ImageViews("paper", (0.5, 0.5, 0.5), (0.3, 0.3, 0.3))
        if images
        else Views(weak=(Jitter(0.05),), strong=(Jitter(0.2, 0.1),))
    )
    if poisoned:
        views = Views(weak=(Jitter(0.05), poison))
    options = {
        "epochs": 2,
        "batch_size": 10,
        "lr": 0.2,
        "drop_last": False,
        "chunk": 20,
        "device": "cpu",
        **more,
    }
    return PartialLabelTrainer(
        model,
        Purifying() if method == Purifying.name else METHODS[method](**(chosen or {})),
        REBALANCERS.create(rebalancer, context),
        [EXTRAS.create(name) for name in extras],
        views=views,
        world=world,
        **options,
    )


def figures(test):
    return [test["accuracy"], *test["per_class"], *test["mean_prediction"]]


def state(trained):
    return {
        "targets": trained.targets.values.cpu(),
        **{
            f"{part}.{name}": value.cpu()
            for part in ("model", "method", "rebalancer", "extras")
            for name, value in trained.state.modules[part].state_dict().items()
        },
        "losses": torch.tensor([record["loss"] for record in trained.history], dtype=torch.float64),
        "judged": torch.tensor(
            [figures(record["test"]) for record in trained.history], dtype=torch.float64
        ),
    }


def trained_to_the_end(options, world):
    """The state after the last epoch; several processes train in blocks of rows, or stream their
    inputs, if the options say so."""
    options = dict(options)
    in_blocks, streams = (
        options.pop(name, False) and world is not None for name in ("blocks", "streamed")
    )
    x, candidates, y = problem(options.get("images", False))
    trained = trainer(world=world, **options)
    values = 6 if in_blocks else row_blocks.VALUES
    with (
        warnings.catch_warnings(),
        mock.patch.object(row_blocks, "VALUES", values),
        mock.patch.object(inputs, "fits", return_value=not streams),
    ):
        warnings.simplefilter("ignore")
        trained.fit(x, candidates, [Evaluate(x, y, y)])
        assert trained._steps_in_blocks(trained.batch_size) == in_blocks
        assert trained.inputs.streamed == streams
    skipped = torch.tensor([record.get("skipped", 0) for record in trained.history])
    return {**state(trained), "predicted": trained.outputs(x).logits[0].cpu(), "skipped": skipped}


def poison(x, generator):
    """A view that is not finite for a few rows."""
    return torch.where(x[:, :1] > 2.7, torch.inf, x)


def leave_and_go_on(world, folder, how):
    """The last process is told to end in the first step of the second epoch; the training goes on
    here, and in one process elsewhere."""
    x, candidates, y = problem()
    checkpoint = folder / "checkpoint.safetensors"
    first = trainer("corr", "records", world, extras=["mixup"], epochs=3, **how)
    original = first.step

    def step(index, views):
        if first.epoch == 1 and world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(index, views)

    first.step = step
    exit_on_signals()
    distributed.SIGNAL_INTERVAL = 0.0
    try:
        first.fit(x, candidates, [Evaluate(x, y, y), Checkpoint(checkpoint)])
    except SystemExit as end:
        (folder / f"{world.rank}.ended").write_text(
            f"{end.code} {first.epoch} {first.state.batches.step}"
        )
    world.wait_for_all()
    if world.first:
        shutil.copy(checkpoint, folder / "left.safetensors")
        # The next training finds a damaged one, and the good one before it.
        shutil.copy(checkpoint, previous_checkpoint(checkpoint))
        checkpoint.write_bytes(checkpoint.read_bytes()[:-50])
    world.wait_for_all()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", CheckpointWarning)
        again = trainer("corr", "records", world, extras=["mixup"], epochs=3, **how)
        again.fit(x, candidates, [Evaluate(x, y, y), Checkpoint(checkpoint)])
    assert any(issubclass(one.category, CheckpointWarning) for one in warned) == world.first
    torch.save(state(again), folder / f"again-{world.rank}.pt")


def lose_one(world, folder, how):
    """The last process is killed in the middle of a training; the others say what they hear of it,
    and after how many seconds."""
    x, candidates, _ = problem()
    training = trainer("proden", "records", world, epochs=3, **how)
    train_epoch, died = training.train_epoch, folder / "died"

    def hear(lost):
        (folder / f"{world.rank}.lost").write_text(
            json.dumps({"lost": lost, "seconds": time.time() - float(died.read_text())})
        )
        os._exit(0)  # there is nobody left to take leave of

    def die_in_the_third(interrupted):
        if training.epoch == 2 and world.rank == world.size - 1:
            died.write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return train_epoch(interrupted)

    training.train_epoch = die_in_the_third
    try:
        training.fit(x, candidates)
    except RuntimeError as error:
        hear(is_loss_of_a_process(error))


def main(folder, rank, size, how, cases):
    """How to train, and the trainings to carry out, are JSON."""
    folder, rank, size, how, cases = (
        Path(folder),
        int(rank),
        int(size),
        json.loads(how),
        json.loads(cases),
    )
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    on_cuda = how["device"] == "cuda"
    if on_cuda:
        # NCCL wants a GPU for each process of a host; as hosts of their own they may share the one
        # that is there.
        os.environ |= {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        torch.cuda.set_device(0)
    where, patience = f"file://{folder / 'meet'}", distributed.STEP_TIMEOUT
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        init_method=where,
        rank=rank,
        world_size=size,
        timeout=patience,
    )
    world = World(rank, size, dist.new_group(backend="gloo"))
    pieces(world, folder, how["device"])
    for number, options in enumerate(cases):
        torch.save(trained_to_the_end(options | how, world), folder / f"{number}-{rank}.pt")
    leave_and_go_on(world, folder, how)
    if not on_cuda:  # processes that wait for a GPU hear of nothing; torchrun kills them
        lose_one(world, folder, how)


def pieces(world, folder, device):
    """All that a world offers, checked here against what every process can work out for itself."""
    for n in (world.size, 7, 10):
        whole = torch.arange(3.0 * n, device=device).view(n, 3)
        assert torch.equal(world.gather_rows(whole[world.own_rows(n)], n), whole)
        # Every process has the loss of all rows; what comes back to its own is as often as there
        # are processes.
        own = whole[world.own_rows(n)].clone().requires_grad_()
        said = world.gather_outputs(Outputs((own,), (own,)), n)
        (said.logits[0] ** 2).sum().backward()
        torch.testing.assert_close(own.grad, 2 * own.detach() * world.size)
        views = world.whole_views((whole[world.own_rows(n)], -whole[world.own_rows(n)]), n)
        assert len(views) == 2
        assert torch.equal(views[1], -whole)
        assert torch.equal(views[1:][0], -whole)
        shares, n_rows = world.own_shares(views)
        assert n_rows == n
        assert torch.equal(shares[0], whole[world.own_rows(n)])
        assert torch.equal(world.own_shares((whole,))[0][0], shares[0])
        torch.testing.assert_close(world.sum_over_all(whole[world.own_rows(n)].sum()), whole.sum())
    assert world.largest_of_all(world.rank) == world.size - 1
    signals = SimpleNamespace(pending=lambda: 0, receive=lambda number: None)
    shared = distributed.SharedSignals(signals, world)
    said = []
    for k in range(200):
        signals.pending = lambda k=k: 7 if world.rank == world.size - 1 and k > 3 else 0
        said.append(shared())
    assert world.value_of_first_process(said) == said  # the same after every call, everywhere
    assert any(said)
    assert not any(said[:4])
    assert world.value_of_first_process(world.rank) == 0
    layers = (
        torch.nn.Conv2d(3, 4, 3).to(device, memory_format=torch.channels_last),
        torch.nn.Conv2d(3, 5, 1).double().to(device),
    )
    trained = [parameter for layer in layers for parameter in layer.parameters()]
    trained.insert(
        0, torch.nn.Parameter(torch.zeros(4, 4, device=device)[:, ::2])
    )  # with gaps in memory
    for number, parameter in enumerate(trained[:-1]):
        parameter.grad = torch.full_like(
            parameter, float(number + world.rank), memory_format=torch.contiguous_format
        )
    world.average_gradients(trained)
    for number, parameter in enumerate(trained[:-1]):
        assert parameter.grad.unique().tolist() == [number + (world.size - 1) / 2]
        assert parameter.grad.stride() == torch.zeros_like(parameter).stride()
    assert trained[-1].grad is None
    (folder / f"{world.rank}.ok").write_text("")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
