"""Joining ONNX models: pixels, normalised, through an encoder that is itself an ONNX model, to the network for its features."""

from __future__ import annotations

from typing import Any

import numpy as np

from ltpll.backbones import Backbone
from ltpll.backbones.onnx_encoder import FLOATS, OnnxEncoder, features_output, opened, picture_input
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
    session = opened(content, name)
    given, wanted = picture_input(session, name), features_output(session)
    if isinstance(given.shape[0], int):
        raise InputError(
            f"The backbone {name!r} takes {given.shape[0]} pictures at a time, so it cannot be part of an exported model."
        )
    side, floats = backbone.preprocessing.side, FLOATS[given.type]
    opset = head.opset_import[0].version
    constants = {
        "mean": np.asarray(mean, np.float32).reshape(-1, 1, 1),
        "std": np.asarray(std, np.float32).reshape(-1, 1, 1),
    }
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["divided"]),
        helper.make_node(
            "Cast",
            ["divided"],
            ["normalised"],
            to=helper.np_dtype_to_tensor_dtype(np.dtype(floats)),
        ),
    ]
    info = helper.make_tensor_value_info
    first = helper.make_graph(
        nodes,
        "normalise",
        [info("x", onnx.TensorProto.FLOAT, ("rows", 3, side, side))],
        [
            info(
                "normalised",
                helper.np_dtype_to_tensor_dtype(np.dtype(floats)),
                ("rows", 3, side, side),
            )
        ],
        [numpy_helper.from_array(array, key) for key, array in constants.items()],
    )
    between = helper.make_graph(
        [
            helper.make_node("Flatten", ["found"], ["flat"]),
            helper.make_node("Cast", ["flat"], ["features"], to=onnx.TensorProto.FLOAT),
        ],
        "flatten",
        [info("found", helper.np_dtype_to_tensor_dtype(np.dtype(floats)), None)],
        [info("features", onnx.TensorProto.FLOAT, ("rows", backbone.n_features))],
    )
    try:
        parts = [
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
            for graph in (first, between)
        ]
        network = version_converter.convert_version(onnx.load_from_string(content), opset)
        models = [parts[0], network, parts[1], head]
        for model in models:
            model.ir_version = head.ir_version  # the newest one may be too new for onnxruntime
        joined = compose.add_prefix(models[0], "pixels/", rename_inputs=False, rename_outputs=False)
        # Each model's output, and the input of the next one.
        links = [("normalised", given.name), (wanted, "found"), ("features", "x")]
        for number, (model, (output, wanted_input)) in enumerate(
            zip(models[1:], links, strict=True), start=1
        ):
            prefix = f"part{number}/"
            before = output if number == 1 else f"part{number - 1}/{output}"
            last = number == len(links)
            renamed = compose.add_prefix(model, prefix, rename_outputs=not last)
            outputs = (
                [one.name for one in renamed.graph.output]
                if last
                else [f"{prefix}{links[number][0]}"]
            )
            joined = compose.merge_models(
                joined, renamed, io_map=[(before, prefix + wanted_input)], outputs=outputs
            )
        onnx.checker.check_model(joined)
    except Exception as error:  # onnx raises many kinds of errors
        raise InputError(
            f"The backbone {name!r} cannot be joined with the classifier ({first_line(error)}): "
            "export the classifier alone, and give it the backbone's features."
        ) from None
    return joined
