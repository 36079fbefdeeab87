"""The `bench` commands: measure speed and memory on this machine."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ltpll.cli.console import console, print_line
from ltpll.cli.options import Device, Engine, JsonFile, part_option, training_option

app = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)
size_option = partial(typer.Option, rich_help_panel="Sizes")
EXAMPLES, CLASSES = [10_000, 100_000, 1_000_000], [100, 1_000, 10_000]


@app.command()
def engine(
    method: Annotated[str, part_option(help="Method to measure; see `ltpll list`.")] = "corr",
    rebalancer: Annotated[str, part_option(help="Rebalancer to measure; it is compared with none.")] = "records",
    width: Annotated[int, part_option(min=1, help="Channels of the first stage of the ResNet-18.")] = 64,
    per_class: Annotated[int, size_option(min=100, help="Size of the largest of 100 classes.")] = 500,
    epochs: Annotated[int, training_option(min=1, help="Epochs in each of three timed passes.")] = 10,
    measure_every: Annotated[int, training_option(min=1, help="Epochs between evaluations on the test set.")] = 10,
    steps: Engine = "auto",
    device: Device = "auto",
    json_file: JsonFile = None,
) -> None:
    """Measure the views per second of the paper's training (ResNet-18, 32×32, batch 256), end to end and part by part."""
    from ltpll.experiments.speed.engine import bench_engine, noise_experiment
    from ltpll.validation import chosen_device

    device = str(chosen_device(device))
    experiment, images = noise_experiment(method, rebalancer, width=width, per_class=per_class, device=device)
    found = bench_engine(experiment, device=device, engine=steps, images=images, epochs=epochs, measure_every=measure_every)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part of a step (256 examples), measured alone")
    table.add_column("ms", justify="right")
    for name, milliseconds in found["milliseconds_per_step"].items():
        table.add_row(name, f"{milliseconds:.2f}")
    console.print(table)
    console.print(f"{found['views_per_second']:,.0f} views/s end to end ({found['engine']} steps, {found['environment']['hardware']})")
    console.print(f"{found['share_of_matrix_peak']:.1%} of the {found['matrix_peak_tflops']:.1f} TFLOP/s that matrix products reach here")
    console.print(f"{rebalancer} costs {found['rebalancer_cost']:+.1%} over none; start-up {found['start_seconds']:.0f} s")
    if found["peak_memory_gib"] is not None:
        console.print(f"peak memory {found['peak_memory_gib']:.2f} GiB")
    _write_json(found, json_file)


@app.command()
def targets(
    examples: Annotated[list[int], size_option(min=1, help="Number of examples. May be repeated.")] = EXAMPLES,
    classes: Annotated[list[int], size_option(min=2, help="Number of classes. May be repeated.")] = CLASSES,
    candidates: Annotated[int, size_option(min=1, help="Candidates per set.")] = 5,
    batch: Annotated[int, size_option(min=1, help="Examples read and written at once.")] = 256,
    seconds: Annotated[float, size_option(min=0.0, help="Seconds spent on each combination.")] = 1.0,
    inaturalist: Annotated[bool, size_option(help="Also measure the size of iNaturalist 2018.")] = True,
    device: Device = "auto",
    json_file: JsonFile = None,
) -> None:
    """Measure the memory of candidates and targets and the time to read and write a batch, compared with dense matrices."""
    from ltpll.experiments.speed.targets import bench_targets
    from ltpll.validation import chosen_device

    found = bench_targets(
        examples, classes, size=candidates, batch=batch, device=str(chosen_device(device)), seconds=seconds, inaturalist=inaturalist
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("examples", "classes", "set\nsize", "MB", "dense\nMB", "read\nms", "write\nms", "dense\nboth", "times\ndense"):
        table.add_column(name, justify="right", no_wrap=True)
    groups = [found["grid"], found["uneven"], [found["inaturalist"]] if found["inaturalist"] else []]
    for rows in groups:
        for row in rows:
            table.add_row(*_cells(row))
        table.add_section()
    console.print(table)
    environment = found["environment"]
    console.print(
        f"Batches of {batch}, median. Dense: a boolean and a float matrix, indexed. "
        f"{environment['hardware']}, threads: {environment['threads']}."
    )
    for name, powers in found["exponents"].items():
        shown = [
            f"{letter}^{round(powers[key], 2) + 0.0:.2f}"
            for letter, key in (("N", "examples"), ("C", "classes"))
            if powers[key] is not None
        ]
        if shown:
            console.print(f"{name:7} grows as {' · '.join(shown)}")
    _write_json(found, json_file)


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["set_sizes"]
    ours, dense = row["milliseconds"], row["dense_milliseconds"]
    cells = [f"{row['examples']:,}", f"{row['classes']:,}", str(low) if low == high else f"{low}–{high}"]
    cells += [f"{row['bytes'] / 1e6:,.1f}", f"{row['dense_bytes'] / 1e6:,.0f}", f"{ours['read']:.3f}", f"{ours['write']:.3f}"]
    if dense is None:
        return [*cells, "–", "–"]
    both = dense["read"] + dense["write"]
    return [*cells, f"{both:.3f}", f"{(ours['read'] + ours['write']) / both:.2f}"]


def _write_json(found: dict[str, Any], path: Path | None) -> None:
    if path is None:
        return
    from ltpll.files import write_atomically

    write_atomically(path, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
    print_line(f"Results: {path.resolve()}")
