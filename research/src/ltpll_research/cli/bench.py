"""The command `bench engine`: measure the speed of training on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

import ltpll_research.cli.options as opt
from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import check_outputs

app = typer.Typer(help="Measure the speed of training on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure the speed of training on this machine."""


@app.command()
def engine(
    context: typer.Context,
    method: Annotated[str, opt.part_option(help="Method to measure; see `ltpll list`.")] = "corr",
    rebalancer: Annotated[
        str, opt.part_option(help="Rebalancer to measure; it is compared with none.")
    ] = "records",
    width: Annotated[
        int, opt.part_option(min=1, help="Channels of the first stage of the ResNet-18.")
    ] = 64,
    per_class: Annotated[
        int, opt.data_option(min=100, help="Size of the largest of 100 classes.")
    ] = 500,
    epochs: Annotated[
        int, opt.training_option(min=1, help="Epochs in each of three timed passes.")
    ] = 10,
    measure_every: Annotated[
        int,
        opt.training_option(
            min=1,
            help="Epochs between evaluations on the test set, as for `ltpll-research benchmark`.",
        ),
    ] = 1,
    steps: opt.Engine = "auto",
    device: opt.Device = "auto",
    json_file: Annotated[
        Path | None, opt.output_option("--json", help="Also write the results to this JSON file.")
    ] = None,
) -> None:
    """Measure the speed of the paper's training (ResNet-18, 32×32, batch 256), part by part."""
    from ltpll.files import write_atomically
    from ltpll.validation import chosen_device
    from ltpll_research.benchmark import Experiment
    from ltpll_research.engine_speed import bench_engine, noise_images

    if json_file is not None:
        check_outputs(context, json_file, suffixes=[".json"], makes_folder=True)
    device = str(chosen_device(device))
    on_cuda = device.startswith("cuda")
    settings = {"method": method, "rebalancer": rebalancer, "width": width, "epochs": 1000}
    settings["precision"] = "bfloat16" if on_cuda else "float32"
    experiment = Experiment.from_mapping({"data": "noise", **settings})
    # A CPU gets few test images, which would take most of the time.
    images = noise_images(per_class, 100, 10_000 if on_cuda else 200)
    timed = {"epochs": epochs, "measure_every": measure_every}
    found = bench_engine(experiment, device=device, engine=steps, images=images, **timed)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part of a step (256 examples), measured alone")
    table.add_column("ms", justify="right")
    for name, milliseconds in found["milliseconds_per_step"].items():
        table.add_row(name, f"{milliseconds:.2f}")
    console.print(table)
    console.print(
        f"{found['views_per_second']:,.0f} views/s end to end, "
        f"{found['training_views_per_second']:,.0f} without evaluation "
        f"({found['engine']} steps, {found['environment']['hardware']})\n"
        f"{found['share_of_matrix_peak']:.1%} of the {found['matrix_peak_tflops']:.1f} TFLOP/s "
        "that matrix products reach here\n"
        f"{rebalancer} costs {found['rebalancer_cost']:+.1%} over none; start-up "
        f"{found['start_seconds']:.0f} s"
    )
    if found["peak_memory_gib"] is not None:
        console.print(f"peak memory {found['peak_memory_gib']:.2f} GiB")
    if json_file is not None:
        write_atomically(json_file, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
        print_line(f"Results: {json_file.resolve()}")
