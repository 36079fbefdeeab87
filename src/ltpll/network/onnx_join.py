"""Joining ONNX models: an encoder that is ONNX itself, and the network for its features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ltpll.backbones import Backbone
from ltpll.backbones.onnx_encoder import (
    FLOATS,
    OnnxEncoder,
    features_output,
    onnx_session,
    picture_input,
)
from ltpll.errors import InputError, first_line


def with_onnx_encoder(head: Any, backbone: Backbone, mean: Any, std: Any) -> Any:
    """One model of an ONNX backbone and the exported network for its features.

    Args:
        head: The exported network: input x, outputs logits and probabilities.
        backbone: A backbone with an `OnnxEncoder`.
        mean, std: What pixels from 0 to 255 are normalised with, for each channel.

    Raises:
        InputError: If the encoder takes a fixed number of pictures, or cannot be joined with the
            network.
    """
    import onnx
    from onnx import compose, helper, numpy_helper, version_converter

    encoder, name = backbone.encoder, backbone.name
    assert isinstance(encoder, OnnxEncoder)
    content = encoder.content.cpu().numpy().tobytes()
    session = onnx_session(content, name)
    given, wanted = picture_input(session, name), features_output(session)
    if isinstance(given.shape[0], int):
        raise InputError(
            f"The backbone {name!r} takes {given.shape[0]} pictures at a time, so it cannot be "
            "part of an exported model."
        )
    side, single = backbone.preprocessing.side, onnx.TensorProto.FLOAT
    floats = helper.np_dtype_to_tensor_dtype(np.dtype(FLOATS[given.type]))
    opset = head.opset_import[0].version
    constants = [
        numpy_helper.from_array(np.asarray(figures, np.float32).reshape(-1, 1, 1), key)
        for key, figures in (("mean", mean), ("std", std))
    ]
    node, info = helper.make_node, helper.make_tensor_value_info
    pictures = ("rows", 3, side, side)
    first = helper.make_graph(
        [
            node("Sub", ["x", "mean"], ["centred"]),
            node("Div", ["centred", "std"], ["divided"]),
            node("Cast", ["divided"], ["normalised"], to=floats),
        ],
        "normalise",
        [info("x", single, pictures)],
        [info("normalised", floats, pictures)],
        constants,
    )
    between = helper.make_graph(
        [node("Flatten", ["found"], ["flat"]), node("Cast", ["flat"], ["features"], to=single)],
        "flatten",
        [info("found", floats, None)],
        [info("features", single, ("rows", backbone.n_features))],
    )
    try:
        opsets = [helper.make_opsetid("", opset)]
        parts = [helper.make_model(graph, opset_imports=opsets) for graph in (first, between)]
        network = version_converter.convert_version(onnx.load_from_string(content), opset)
        models = [parts[0], network, parts[1], head]
        for model in models:
            model.ir_version = head.ir_version  # the newest one may be too new for onnxruntime
        joined = compose.add_prefix(models[0], "pixels/", rename_inputs=False, rename_outputs=False)
        # Each model's output, and the input of the next one.
        links = [("normalised", given.name), (wanted, "found"), ("features", "x")]
        for number, (output, wanted_input) in enumerate(links, start=1):
            prefix, last = f"part{number}/", number == len(links)
            before = output if number == 1 else f"part{number - 1}/{output}"
            renamed = compose.add_prefix(models[number], prefix, rename_outputs=not last)
            outputs = [one.name for one in renamed.graph.output]
            if not last:
                outputs = [prefix + links[number][0]]
            io_map = [(before, prefix + wanted_input)]
            joined = compose.merge_models(joined, renamed, io_map=io_map, outputs=outputs)
        onnx.checker.check_model(joined)
    except Exception as error:  # onnx raises many kinds of errors
        raise InputError(
            f"The backbone {name!r} cannot be joined with the classifier ({first_line(error)}): "
            "export the classifier alone, and give it the backbone's features."
        ) from None
    return joined
