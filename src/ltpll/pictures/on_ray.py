"""Embeds pictures on Ray: a Ray Data job that decodes and embeds on one machine or a cluster."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ltpll.errors import InputError, first_line, required_by
from ltpll.pictures.embedding import EmbeddedBlock, Stream, finite
from ltpll.pictures.files import Geometry, PictureError, decode_picture

if TYPE_CHECKING:
    from ltpll.backbones import Backbone

BLOCK = 32  # pictures per task that decodes
AT_ONCE = 256  # rows per block of the result


def ray_stream(
    backbone: Backbone,
    *,
    device: str = "auto",
    precision: str = "float32",
    workers: int | None = None,
    address: str | None = None,
    embedder: Any = None,
) -> Stream:
    """A stream of embeddings that are computed on Ray; the pictures must have the same paths on every machine.

    Without an address, Ray uses the cluster that this machine belongs to, or starts a local one that ends with the stream.

    Args:
        backbone: The network and its preprocessing.
        device: "cpu", "cuda" (every copy of the network has a GPU) or "auto" (CUDA if Ray has a GPU).
        precision: "float32" or "bfloat16".
        workers: The number of copies of the network; by default one per GPU, or one per machine without a GPU.
        address: The address of a Ray cluster.
        embedder: A class that is called with backbone, device and precision instead of `Embedder`.
    """

    def stream(files: Sequence[str]) -> Generator[EmbeddedBlock]:
        with required_by("The launcher ray", install="'ltpll[ray]'"):
            import ray
            import ray.data
        started_here = not ray.is_initialized()
        try:
            ray.init(
                address=address,
                ignore_reinit_error=True,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(
                f"Ray cannot be reached at {address or 'this machine'} ({first_line(error)}): see `ray status`."
            ) from None
        try:
            yield from _embedded(ray, files, backbone, device, precision, workers, embedder)
        finally:
            if started_here:
                ray.shutdown()

    return stream


def _embedded(
    ray: Any,
    files: Sequence[str],
    backbone: Backbone,
    device: str,
    precision: str,
    workers: int | None,
    embedder: Any,
) -> Generator[EmbeddedBlock]:
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if device.startswith("cuda") and not gpus:
        raise InputError("Ray has no GPU: start it on machines that have one, or use --device cpu.")
    on_gpu = gpus > 0 and device != "cpu"
    copies = workers or (gpus if on_gpu else len(ray.nodes()))
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True  # rows are written in order
    context.enable_progress_bars = False  # the command shows its own
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    arguments = (ray.put(backbone), "cuda" if on_gpu else "cpu", precision, embedder)
    pictures = ray.data.from_items(
        [{"row": i, "file": file} for i, file in enumerate(files)],
        override_num_blocks=-(-len(files) // AT_ONCE),
    )
    embedded = pictures.map_batches(
        _Decode(Geometry.of(backbone.preprocessing)), batch_size=BLOCK
    ).map_batches(
        _Network,
        fn_constructor_args=arguments,
        batch_size=BLOCK,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=copies),
        num_gpus=1 if on_gpu else 0,
    )
    try:
        for batch in embedded.iter_batches(batch_size=AT_ONCE, batch_format="numpy"):
            yield _block(batch, files)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise InputError(
            f"The job on Ray failed ({first_line(cause or error)}): rerun the command to resume."
        ) from None


def _block(batch: dict[str, Any], files: Sequence[str]) -> EmbeddedBlock:
    rows, problems = batch["row"].tolist(), [str(problem) for problem in batch["problem"]]
    kept = [i for i, problem in enumerate(problems) if not problem]
    features = finite(
        np.asarray(batch["features"], dtype=np.float32)[kept], [files[rows[i]] for i in kept]
    )
    found = {row: problem for row, problem in zip(rows, problems, strict=True) if problem}
    return EmbeddedBlock(rows[0], rows[-1] + 1, [rows[i] for i in kept], features, found)


class _Decode:
    """Decodes a batch of files; a picture that cannot be read is black, and its problem is stated."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        side = self.geometry.side
        pixels, problems = np.zeros((len(batch["file"]), side, side, 3), dtype=np.uint8), []
        for i, file in enumerate(batch["file"]):
            try:
                pixels[i] = decode_picture(str(file), self.geometry)
                problems.append("")
            except PictureError as problem:
                problems.append(str(problem))
        return {
            "row": batch["row"],
            "pixels": pixels,
            "problem": np.asarray(problems, dtype=object),
        }


class _Network:
    """A copy of the network in a process of its own."""

    def __init__(self, backbone: Any, device: str, precision: str, embedder: Any) -> None:
        import ray

        if embedder is None:
            from ltpll.backbones.embedder import Embedder as embedder  # noqa: N813
        self.embed = embedder(ray.get(backbone), device, precision)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        features = np.asarray(self.embed(np.ascontiguousarray(batch["pixels"])), dtype=np.float32)
        return {"row": batch["row"], "problem": batch["problem"], "features": features}
