"""Mutations turn valid files into almost valid ones."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

Mutation = Callable[[random.Random, bytes], bytes]
INTEGERS = (
    *(0, 1, 2, 4, 7, 8, 15, 16, 32, 100, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**20),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1),
)
NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"2147483648",
    b"-9223372036854775809",
    b"1e999",
    b"-0.0",
    b"nan",
    b"0.30000000000000004",
    b"9" * 40,
)
MOST = 1 << 16  # maximum bytes of a case


def mutated(
    rng: random.Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]
) -> bytes:
    """Flip, delete, insert, repeat, move or replace bytes, also by tokens or parts of another file;
    one or a few changes at once.
    """
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 8))):
        position = rng.randrange(len(content) + 1)
        length = rng.choice((1, 1, 2, 4, 8, rng.randrange(1, 64)))
        kind = rng.randrange(12)
        if kind == 0 and position < len(content):
            content[position] ^= 1 << rng.randrange(8)
        elif kind == 1 and position < len(content):
            content[position] = rng.randrange(256)
        elif kind == 2:
            del content[position : position + length]
        elif kind == 3:
            content[position:position] = rng.randbytes(length)
        elif kind == 4:
            content[position:position] = content[position : position + length] * rng.choice(
                (1, 1, 2, 50)
            )
        elif kind == 5:
            size = rng.choice("BHIQ")
            number = rng.choice(INTEGERS) & (2 ** (8 * struct.calcsize(size)) - 1)
            content[position : position + struct.calcsize(size)] = struct.pack(
                rng.choice("<>") + size, number
            )
        elif kind in (6, 7) and tokens:
            content[position : position + rng.choice((0, 0, length))] = rng.choice(tokens)
        elif kind == 8:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            content[position : position + length] = other[start : start + rng.randrange(1, 200)]
        elif kind == 9 and rng.random() < 0.5:
            del content[position:]
        elif kind == 10:
            target = rng.randrange(len(content) + 1)
            part = content[position : position + length]
            del content[position : position + length]
            content[target:target] = part
        elif kind == 11:
            content[position : position + rng.choice((0, length))] = rng.choice(NUMBERS)
    return bytes(content[:MOST])


# ---- mutations that know the format, so that cases get past the first checks ---------------------

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        0.5,
        1e308,
        -1e308,
        2**31,
        2**63,
        10**30,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        "test",
        "corr",
        "records",
        "none",
        "cat|dog",
        "\ud800",
        "a\nb",
        "\0",
        "x" * 3000,
        "</script>",
        "../../x",
        "1",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [1, 2, 3],
        [0.5] * 3,
        {"test": {}},
        {"": None},
        [[1], [2]],
        ["a", "b", "c"],
    ),
)


def mutated_tree(rng: random.Random, tree: Any) -> Any:
    """Replace, remove, repeat, rename or exchange a few entries of JSON-like content."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _changed(rng, tree)
    return tree


def _changed(rng: random.Random, tree: Any) -> Any:
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.12:
        return _other(rng, tree)
    if isinstance(tree, list):
        i = rng.randrange(len(tree))
        what = rng.random()
        if what < 0.15:
            return tree[:i] + tree[i + 1 :]
        if what < 0.25:
            return [*tree, tree[i]]
        return [*tree[:i], _changed(rng, tree[i]), *tree[i + 1 :]]
    key = rng.choice(list(tree))
    what = rng.random()
    if what < 0.12:
        return {name: value for name, value in tree.items() if name != key}
    if what < 0.18:
        return {
            (rng.choice(("", "test", "seed", key * 2, key[:-1])) if name == key else name): value
            for name, value in tree.items()
        }
    if what < 0.26:
        return tree | {key: tree[rng.choice(list(tree))]}
    return tree | {key: _changed(rng, tree[key])}


def _other(rng: random.Random, value: Any) -> Any:
    if isinstance(value, (int, float)) and rng.random() < 0.5:
        return rng.choice(
            (-value, value * 2, value + 1, value / 3, value * 10**9, str(value), [value])
        )
    if isinstance(value, str) and rng.random() < 0.5:
        return rng.choice((value + value, value[:-1], [value], value.upper(), value + "\n"))
    return rng.choice(VALUES)


def json_mutation(rng: random.Random, data: bytes) -> bytes:
    try:
        return json.dumps(mutated_tree(rng, json.loads(data))).encode("utf-8", "surrogatepass")[
            :MOST
        ]
    except (ValueError, RecursionError):
        return data


def safetensors_mutation(rng: random.Random, data: bytes) -> bytes:
    """Change the JSON header and correct its length."""
    (size,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
    try:
        header = json.loads(data[8 : 8 + size])
        values = header.get("__metadata__", {}).get("values")
        if values and rng.random() < 0.6:
            header["__metadata__"]["values"] = json.dumps(mutated_tree(rng, json.loads(values)))
        else:
            header = mutated_tree(rng, header)
        text = json.dumps(header).encode("utf-8", "surrogatepass")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data
    text += b" " * (-len(text) % 8)
    return (struct.pack("<Q", len(text)) + text + data[8 + size :])[:MOST]


def zip_mutation(rng: random.Random, data: bytes) -> bytes:
    """Change a member and correct checksums and lengths."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # not a zip file that this mutation can change
        return data
    if not members:
        return data
    name = rng.choice(list(members))
    members[name] = mutated(
        rng,
        members[name],
        list(members.values()),
        (b"<f8", b"|O", b"'shape': (1,)", b"(9999999999, 9999999999)"),
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(
        packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for member, content in members.items():
            archive.writestr(member + ".npy" * (rng.random() < 0.02), content)
    return packed.getvalue()[:MOST]
