"""The export command: write the classifier of a trained run as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.options import OwnRun, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.formatting import counted


def export(
    context: typer.Context,
    run: OwnRun,
    onnx: Annotated[Path, output_option(help="ONNX model to write.")],
) -> None:
    """Write a trained run as an ONNX model that takes raw inputs and returns logits and
    probabilities, checked if onnxruntime is installed.

    Columns of numbers, categories and dates are inputs by their names. The model's metadata, and a
    JSON file beside it, hold the names of the classes, the inputs and the preprocessing.
    """
    from ltpll.cleaning.prediction import (
        load_classifier,
        onnx_difference,
        stored_backbone,
        stored_encoder,
    )
    from ltpll.columns.onnx_export import with_columns
    from ltpll.network.export import sidecar
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind

    check_outputs(context, onnx, sidecar(onnx), suffixes=[".onnx"], makes_folder=True)
    record = Run.open(run, Kind.TABLE).result()
    classifier, backbone = load_classifier(run, record, "cpu"), stored_backbone(run, record)
    encoder = stored_encoder(run, record)
    names = record["source"]["feature_names"]
    if encoder is not None:
        features = [f"feature {k + 1}" for k in range(encoder.n_beside)]
        names = features + encoder.get_feature_names_out().tolist()
        backbone = None  # the model takes its features beside the encoded columns
    classifier.to_onnx(onnx, names if len(classifier.input_shape_) == 1 else (), backbone)
    difference = onnx_difference(classifier, onnx, backbone)
    shape = classifier.input_shape_
    if backbone is not None:
        shape = (3, backbone.preprocessing.side, backbone.preprocessing.side)
    checked = "not checked, because onnxruntime is not installed"
    if difference is not None:
        checked = f"differs from torch by {difference:.1g} at most"
    given = f"input x (rows, {', '.join(map(str, shape))})"
    if encoder is not None and not encoder.has_texts:
        with_columns(onnx, sidecar(onnx), encoder)
        given = f"an input for each of {counted(len(encoder.columns_), 'column')}"
        given += " and one for the features" if encoder.n_beside else ""
    print_line(
        f"Wrote {onnx}: {given}, outputs logits and probabilities of {len(classifier.classes_)} "
        f"classes; {checked}."
    )
    print_line(f"Wrote {sidecar(onnx)}")
