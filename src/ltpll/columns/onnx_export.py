"""Columns of a table as the inputs of an ONNX model, in the place of encoded numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.columns.categories import CategoryColumn
from ltpll.columns.encoder import ColumnEncoder
from ltpll.columns.numbers import CYCLES, DateColumn, NumberColumn
from ltpll.errors import InputError, shown
from ltpll.files import write_atomically
from ltpll.network.export import ML, NodeWriter
from ltpll.tables.columns import MISSING

UNSEEN = "\0"  # stands for every level that training did not see
BESIDE = "features"  # the input for the features of pictures, or of a file
Numbers = npt.NDArray[Any]
VALUES = {
    NumberColumn: "numbers, NaN for a gap",
    DateColumn: "days since 1970-01-01, NaN for a gap",
    CategoryColumn: "texts as in the table, empty for a gap",
}


def with_columns(path: Path, description: Path, encoder: ColumnEncoder) -> None:
    """Rewrite an ONNX model so that it takes the columns of a table, each as an input of its name.

    Args:
        path: A model whose input `x` is what the encoder returns, after the features beside it.
        description: The JSON file that describes the model.
        encoder: A fitted encoder without columns of text.

    Raises:
        InputError: A column holds texts.
    """
    import onnx
    from onnx import compose, helper

    if encoder.has_texts:
        raise InputError("A model with columns of text takes encoded columns.")
    # Names of columns may be those of nodes, or of the input `x`.
    prefix = "model/"
    while any(name.startswith(prefix) for name in encoder.columns_):
        prefix = f"_{prefix}"
    model = compose.add_prefix(onnx.load(path), prefix, rename_outputs=False)
    graph, writer, inputs, about = model.graph, NodeWriter(f"{prefix}columns/"), [], []

    def new_input(name: str, kind: int, width: int, values: str) -> str:
        inputs.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
        about.append({"name": name, "shape": ["rows", width], "values": values})
        return name

    parts = []
    if encoder.n_beside:
        given = new_input(BESIDE, onnx.TensorProto.DOUBLE, encoder.n_beside, "as for training")
        center, scale = encoder.beside_
        moved = writer.add("Mul", [writer.add("Sub", [given, center]), scale])
        parts.append(writer.add("Cast", [moved], to=onnx.TensorProto.FLOAT))
    for name, column in encoder.columns_.items():
        if name in ("logits", "probabilities", *([BESIDE] if encoder.n_beside else [])):
            raise InputError(
                f"The column {shown(name)} has the name of an output, or of the features beside "
                "it: rename it."
            )
        texts = isinstance(column, CategoryColumn)
        kind = onnx.TensorProto.STRING if texts else onnx.TensorProto.DOUBLE
        given = new_input(name, kind, 1, VALUES[type(column)])
        if isinstance(column, CategoryColumn):
            parts.append(_of_categories(writer, given, column))
        elif isinstance(column, DateColumn):
            parts += _of_dates(writer, given, column)
        elif isinstance(column, NumberColumn):
            parts += _of_numbers(writer, given, column)
    joined = writer.add("Concat", parts, axis=1)
    old = graph.input[0]
    writer.add("Cast", [joined], old.name, to=old.type.tensor_type.elem_type)
    own = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.input.extend(inputs)
    writer.append_to(model)
    graph.node.extend(own)
    onnx.checker.check_model(model)
    facts = json.loads(description.read_text(encoding="utf-8")) | {"input": about}
    for entry in model.metadata_props:
        if entry.key == "input":
            entry.value = json.dumps(about, ensure_ascii=False)
    write_atomically(path, model.SerializeToString())
    write_atomically(description, f"{json.dumps(facts, ensure_ascii=False, indent=1)}\n".encode())


def _of_numbers(writer: NodeWriter, given: str, column: NumberColumn) -> list[str]:
    """The outputs of `NumberColumn.of_numbers`, in its order."""
    import onnx

    single = onnx.TensorProto.FLOAT
    missing = writer.add("IsNaN", [given])
    filled = writer.add("Where", [missing, np.float64(column.median), given])
    if column.knots:
        knots, places = np.asarray(column.knots), np.asarray(column.places)
        climbed = _climbed(writer, filled, knots)
        risen = writer.add("MatMul", [climbed, np.diff(places)[:, None]])
        plain = writer.add("Add", [risen, places[:1]])
    else:
        centred = writer.add("Sub", [filled, np.float64(column.center)])
        plain = writer.add("Div", [centred, np.float64(column.scale)])
    found = [writer.add("Cast", [plain], to=single)]
    if len(column.edges) > 1:
        bins = _climbed(writer, filled, np.asarray(column.edges))
        found.append(writer.add("Cast", [bins], to=single))
    if column.gaps:
        found.append(writer.add("Cast", [missing], to=single))
    return found


def _climbed(writer: NodeWriter, given: str, edges: Numbers) -> str:
    """How far a number is through each interval between two edges, from 0 to 1."""
    above = writer.add("Sub", [given, edges[:-1]])
    share = writer.add("Div", [above, np.diff(edges)])
    return writer.add("Clip", [share, np.float64(0), np.float64(1)])


def _of_dates(writer: NodeWriter, given: str, column: DateColumn) -> list[str]:
    """The outputs of `DateColumn.encode`, in its order."""
    import onnx

    found = _of_numbers(writer, given, column.time)
    missing = writer.add("IsNaN", [given])
    days = writer.add("Where", [missing, np.float64(0), given])
    for part in column.cycles:
        # Within one period, since float32 is precise enough there for a sine.
        turns = writer.add("Div", [days, np.float64(CYCLES[part])])
        turns = writer.add("Sub", [turns, writer.add("Floor", [turns])])
        angle = writer.add("Cast", [turns], to=onnx.TensorProto.FLOAT)
        angle = writer.add("Mul", [angle, np.float32(2 * np.pi)])
        for wave in ("Sin", "Cos"):
            found.append(writer.add("Where", [missing, np.float32(0), writer.add(wave, [angle])]))
    return found


def _of_categories(writer: NodeWriter, given: str, column: CategoryColumn) -> str:
    """The outputs of `CategoryColumn.encode`, looked up by the level."""
    levels = list(dict.fromkeys([*column.levels, *column.frequencies]))
    gaps = sorted({form(word) for word in MISSING for form in (str, str.upper, str.title)})
    table = column.encode("", np.asarray([*levels, None, UNSEEN], dtype=object))
    place = writer.add(
        "LabelEncoder",
        [given],
        domain=ML,
        keys_strings=[*levels, *gaps],
        values_int64s=[*range(len(levels)), *[len(levels)] * len(gaps)],
        default_int64=len(levels) + 1,
    )
    rows = writer.add("Gather", [table, place], axis=0)
    return writer.add("Squeeze", [rows, np.asarray([1])])
