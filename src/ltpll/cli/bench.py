"""Benchmark commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from ltpll.cli.console import console

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def engine(
    method: Annotated[str, typer.Option(help="See `ltpll list`.")] = "corr",
    rebalancer: Annotated[str, typer.Option(help="Compared with `none`.")] = "records",
    steps: Annotated[str, typer.Option("--engine", help="eager, captured, compiled, or auto: captured on CUDA, else eager.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    width: Annotated[int, typer.Option(min=1, help="Width of the ResNet-18's first stage.")] = 64,
    per_class: Annotated[int, typer.Option(min=100, help="Size of the largest of 100 classes.")] = 500,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in each of three timed passes.")] = 10,
    measure_every: Annotated[int, typer.Option(min=1, help="Epochs between looks at the test set.")] = 10,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.", show_default=False)] = None,
) -> None:
    """Views per second of the paper's training (ResNet-18, 32×32, batch 256), end to end and part by part."""
    from ltpll.bench import bench_engine, random_images
    from ltpll.experiment import Experiment
    from ltpll.files import write_atomically
    from ltpll.inputs import chosen_device

    device = str(chosen_device(device))
    on_cuda = device.startswith("cuda")
    experiment = Experiment(
        "noise", method=method, rebalancer=rebalancer, width=width, epochs=1000, precision="bfloat16" if on_cuda else "float32"
    )
    images = random_images(per_class, 100, 10_000 if on_cuda else 200)
    found = bench_engine(experiment, device=device, engine=steps, images=images, epochs=epochs, measure_every=measure_every)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part of a step (256 examples), run by itself")
    table.add_column("ms", justify="right")
    for name, milliseconds in found["milliseconds_per_step"].items():
        table.add_row(name, f"{milliseconds:.2f}")
    console.print(table)
    console.print(f"{found['views_per_second']:,.0f} views/s end to end ({found['engine']} steps, {found['environment']['hardware']})")
    console.print(f"{found['share_of_matrix_peak']:.1%} of the {found['matrix_peak_tflops']:.1f} TFLOP/s that matrix products reach here")
    console.print(f"{rebalancer} costs {found['rebalancer_cost']:+.1%} over none; start-up {found['start_seconds']:.0f} s")
    if found["peak_memory_gib"] is not None:
        console.print(f"peak memory {found['peak_memory_gib']:.2f} GiB")
    if json_out:
        write_atomically(json_out, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
        console.print(f"Figures: {json_out.resolve()}", markup=False, soft_wrap=True)
