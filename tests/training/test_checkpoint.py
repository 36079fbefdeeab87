"""A checkpoint comes back bit for bit, a failed write leaves the old one, and any other file is
refused."""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from ltpll.errors import CheckpointWarning, InputError
from ltpll.files import check_writable, write_atomically
from ltpll.training.checkpoint import (
    FORMAT,
    add_checkpoint,
    has_checkpoint,
    load_optimizer,
    optimizer_tensors,
    read_checkpoint,
    usable_checkpoint,
    write_checkpoint,
)
from support.refusals import refusal

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
TENSORS = {"weight": torch.tensor([[1.5, -2.0]]), "state": torch.arange(300, dtype=torch.uint8)}
VALUES = {
    "epoch": 3,
    "best": 0.1,
    "name": "corr ρ",
    "curve": [0.25, None, True],
    "nested": {"a": {}},
}


def assert_same(read, written):
    assert read.keys() == written.keys()
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype
        assert read[name].shape == tensor.shape
        # As bytes, so that NaN equals itself and -0 is not 0.
        assert (
            read[name].contiguous().flatten().view(torch.uint8).tolist()
            == tensor.contiguous().flatten().view(torch.uint8).tolist()
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (2, 3), (0,), (0, 3), (2, 1, 1, 2)])
def test_tensors_of_every_type_come_back_bit_for_bit(tmp_path, dtype, shape):
    tensor = torch.randint(
        0, 256, (*shape, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    tensor = (tensor % 2).bool() if dtype == torch.bool else tensor.view(dtype)
    write_checkpoint(tmp_path / "c", {"t": tensor}, {})
    assert_same(read_checkpoint(tmp_path / "c")[0], {"t": tensor})


def test_special_numbers_and_scalars_come_back(tmp_path):
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    tensors = {
        "special": special,
        "largest": torch.tensor([2**63 - 1, -(2**63)]),
        "yes": torch.tensor([True, False]),
    }
    write_checkpoint(tmp_path / "c", tensors, {})
    assert_same(read_checkpoint(tmp_path / "c")[0], tensors)
    write_checkpoint(tmp_path / "c", {"step": torch.tensor(5)}, {})
    step = read_checkpoint(tmp_path / "c")[0]["step"]
    assert step.shape == ()
    assert step.item() == 5


def test_the_random_state_continues_where_it_stopped(tmp_path):
    generator = torch.Generator().manual_seed(4)
    torch.rand(5, generator=generator)
    write_checkpoint(tmp_path / "c", {"rng": generator.get_state()}, {})
    expected = torch.rand(5, generator=generator)
    again = torch.Generator()
    again.set_state(read_checkpoint(tmp_path / "c")[0]["rng"])
    assert torch.equal(torch.rand(5, generator=again), expected)


def test_transposed_tensors_and_parameters_come_back_as_plain_ones(tmp_path):
    layer = nn.Linear(3, 2)
    write_checkpoint(tmp_path / "c", {"w": layer.weight, "wt": layer.weight.detach().clone().T}, {})
    tensors, _ = read_checkpoint(tmp_path / "c")
    assert torch.equal(tensors["w"], layer.weight)
    assert torch.equal(tensors["wt"], layer.weight.T)
    assert not tensors["w"].requires_grad


def test_one_tensor_under_two_names_comes_back_under_both(tmp_path):
    tied = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    tied["b"].weight = tied["a"].weight
    write_checkpoint(tmp_path / "c", tied.state_dict(), {})
    assert_same(read_checkpoint(tmp_path / "c")[0], tied.state_dict())


@settings(max_examples=30, deadline=None)
@given(
    values=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False)
            | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_plain_values_come_back_equal(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "values.checkpoint"
    write_checkpoint(path, TENSORS, values)
    tensors, read = read_checkpoint(path)
    assert read == values
    assert_same(tensors, TENSORS)


def test_a_nan_among_the_values_comes_back_as_nan(tmp_path):
    write_checkpoint(tmp_path / "c", {}, {"loss": float("nan")})
    assert math.isnan(read_checkpoint(tmp_path / "c")[1]["loss"])


def test_folders_are_made_on_the_way_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a" / "b" / "last.checkpoint"
    write_checkpoint(path, TENSORS, VALUES)
    write_checkpoint(path, TENSORS, {"epoch": 4})
    assert [p.name for p in path.parent.iterdir()] == ["last.checkpoint"]
    assert read_checkpoint(path)[1] == {"epoch": 4}


# ---- failing writes ------------------------------------------------------------------------------


def fail(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "step"), [(Path, "replace"), (os, "fsync")], ids=["replace", "fsync"]
)
def test_a_write_that_fails_leaves_the_old_file_and_no_temporary(
    tmp_path, monkeypatch, owner, step
):
    path = tmp_path / "c"
    write_checkpoint(path, TENSORS, VALUES)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, fail)
        message = refusal(lambda: write_checkpoint(path, {"weight": torch.zeros(9)}, {}))
    assert message.startswith(
        f"{path} cannot be written (No space left on device): free some space"
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_first_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "replace", fail)
    assert "No space left" in refusal(lambda: write_atomically(tmp_path / "c", b"content"))
    assert list(tmp_path.iterdir()) == []


def test_the_content_is_on_the_disk_before_the_file_takes_its_name(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append("fsync"), fsync(number))[1])
    monkeypatch.setattr(
        Path,
        "replace",
        lambda self, target: (steps.append(self.read_bytes()), replace(self, target))[1],
    )
    write_atomically(tmp_path / "c", b"content")
    assert steps == ["fsync", b"content", "fsync"]


# ---- files that are no checkpoint ----------------------------------------------------------------


def valid_bytes(tmp_path):
    write_checkpoint(tmp_path / "valid", TENSORS, VALUES)
    return (tmp_path / "valid").read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_truncated_checkpoint_is_refused_as_damaged(tmp_path, share):
    content = valid_bytes(tmp_path)
    path = tmp_path / "c"
    path.write_bytes(content[: int(share * len(content))])
    message = refusal(lambda: read_checkpoint(path))
    assert message.startswith(f"The checkpoint {path} is damaged")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"hello, this is a text file",
        b"\xff" * 200,
        b"\0" * 200,
        pickle.dumps({"weight": [1, 2]}),
        b"PK\x03\x04" + b"x" * 100,
    ],
    ids=["empty", "one byte", "text", "ones", "zeros", "pickle", "zip"],
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "c"
    path.write_bytes(content)
    assert str(path) in refusal(lambda: read_checkpoint(path))


def test_a_checkpoint_with_a_broken_header_is_refused(tmp_path):
    content = bytearray(valid_bytes(tmp_path))
    content[8:20] = b"x" * 12
    (tmp_path / "c").write_bytes(content)
    assert "damaged" in refusal(lambda: read_checkpoint(tmp_path / "c"))


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"format": "pt"}, {"format": "ltpll-run-1"}],
    ids=["none", "empty", "torch", "other"],
)
def test_weights_of_another_program_are_refused_as_foreign(tmp_path, metadata):
    save_file({"weight": torch.ones(2)}, tmp_path / "c", metadata=metadata)
    assert refusal(lambda: read_checkpoint(tmp_path / "c")).startswith(
        f"{tmp_path / 'c'} is not an ltpll checkpoint"
    )


@pytest.mark.parametrize(
    "values", [None, "{", "", "{'a': 1}"], ids=["missing", "cut", "empty", "python"]
)
def test_values_that_do_not_parse_are_refused_as_damaged(tmp_path, values):
    metadata = {"format": FORMAT, "checksum": "00000000"} | (
        {} if values is None else {"values": values}
    )
    save_file({"weight": torch.ones(2)}, tmp_path / "c", metadata=metadata)
    assert "damaged" in refusal(lambda: read_checkpoint(tmp_path / "c"))


def test_no_byte_can_be_changed_unnoticed(tmp_path):
    content = valid_bytes(tmp_path)
    path = tmp_path / "c"
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            tensors, values = read_checkpoint(path)
        except InputError:
            continue
        # The order of the file's index, or the case of an escape, may change; what is read may not.
        assert values == VALUES, place
        assert_same(tensors, TENSORS)


def test_a_missing_file_is_named(tmp_path):
    assert (
        refusal(lambda: read_checkpoint(tmp_path / "none"))
        == f"There is no checkpoint {tmp_path / 'none'}."
    )


def test_a_folder_is_refused(tmp_path):
    assert str(tmp_path) in refusal(lambda: read_checkpoint(tmp_path))


def test_the_file_is_plain_safetensors(tmp_path):
    content = valid_bytes(tmp_path)
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    assert set(header) == {"__metadata__", "weight", "state"}
    assert json.loads(header["__metadata__"]["values"]) == VALUES


# ---- the checkpoint before -----------------------------------------------------------------------


def anything(tensors, values):
    return ""


def add(path, *epochs):
    for epoch in epochs:
        add_checkpoint(path, TENSORS, {"epoch": epoch})


def test_the_checkpoint_before_is_kept_and_no_more(tmp_path):
    path = tmp_path / "c.safetensors"
    assert not has_checkpoint(path)
    add(path, 1, 2, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.previous.safetensors", "c.safetensors"]
    assert usable_checkpoint(path, anything)[1] == {"epoch": 3}
    assert read_checkpoint(tmp_path / "c.previous.safetensors")[1] == {"epoch": 2}


def test_between_the_two_moves_of_a_write_the_checkpoint_before_is_used_without_a_word(tmp_path):
    path = tmp_path / "c.safetensors"
    add(path, 1, 2)
    path.unlink()
    assert has_checkpoint(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert usable_checkpoint(path, anything)[1] == {"epoch": 1}


@pytest.mark.parametrize("content", [b"", b"text", None], ids=["empty", "foreign", "refused"])
def test_a_checkpoint_that_is_passed_over_is_warned_of_and_never_pushes_out_the_good_one(
    tmp_path, content
):
    path = tmp_path / "c.safetensors"
    add(path, 1, 2)
    if content is not None:
        path.write_bytes(content)

    def check(tensors, values):
        return "is of another training" if values["epoch"] == 2 else ""

    with pytest.warns(
        CheckpointWarning,
        match=r"c.safetensors is .*: it was renamed to c.refused.safetensors, and the previous",
    ):
        assert usable_checkpoint(path, check)[1] == {"epoch": 1}
    add(path, 3)
    assert read_checkpoint(path)[1] == {"epoch": 3}
    assert read_checkpoint(tmp_path / "c.previous.safetensors")[1] == {"epoch": 1}


def test_a_single_checkpoint_that_is_refused_is_refused_with_its_reason(tmp_path):
    path = tmp_path / "c.safetensors"
    assert refusal(lambda: usable_checkpoint(path, anything)) == f"There is no checkpoint {path}."
    add(path, 1)
    message = refusal(
        lambda: usable_checkpoint(path, lambda tensors, values: "belongs to other data")
    )
    assert (
        message
        == f"The checkpoint {path} belongs to other data: use a copy or another path, or start a run again "
        "with --fresh."
    )
    assert path.exists()


def test_what_a_killed_writer_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    path = tmp_path / "c.safetensors"
    for name in (".c.safetensors.123.tmp", ".other.safetensors.123.tmp"):
        (tmp_path / name).write_bytes(b"half")
    add(path, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".other.safetensors.123.tmp",
        "c.safetensors",
    ]


def test_a_folder_that_takes_no_files_is_refused_and_one_that_does_is_left_as_it_was(
    tmp_path, monkeypatch
):
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("precious")
    assert "cannot be written" in refusal(lambda: check_writable(tmp_path / "file"))
    monkeypatch.setattr(Path, "write_bytes", fail)
    assert "No space left on device" in refusal(lambda: check_writable(tmp_path))


def test_values_that_are_too_long_for_a_header_come_back_too(tmp_path):
    values = {"history": ["ä" * 100] * 30_000}
    write_checkpoint(tmp_path / "long.safetensors", {"a": torch.arange(3.0)}, values)
    tensors, found = read_checkpoint(tmp_path / "long.safetensors")
    assert found == values
    assert tensors.keys() == {"a"}


def test_momenta_come_back_in_the_order_in_memory_that_their_parameters_have(tmp_path):
    """A file has rows one after the other, but the fused optimizer of a GPU refuses momenta that
    lie otherwise than their parameters."""
    layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9) for _ in range(2))
    layer(torch.ones(1, 3, 5, 5)).square().sum().backward()
    first.step()
    write_checkpoint(tmp_path / "one", optimizer_tensors(first), {})
    load_optimizer(second, read_checkpoint(tmp_path / "one")[0])
    for parameter in layer.parameters():
        kept, loaded = (one.state[parameter]["momentum_buffer"] for one in (first, second))
        assert torch.equal(loaded, kept)
        assert loaded.stride() == parameter.stride()
    assert layer.weight.stride() != layer.weight.contiguous().stride()


def test_equal_checkpoints_have_equal_bytes_and_are_read_back(tmp_path):
    tensors, values = {"ü\n": torch.arange(3), "b": torch.ones(2, 2)}, {"name": 'quote " and ü'}
    for name in "abcdefgh":
        write_checkpoint(tmp_path / name, tensors, values)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    read, found = read_checkpoint(tmp_path / "a")
    assert found == values
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
