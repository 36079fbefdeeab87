"""Benchmark commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

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
    from ltpll.experiments.benchmark import Experiment
    from ltpll.experiments.speed.engine import bench_engine, random_images
    from ltpll.validation import chosen_device

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
    _write(found, json_out)


@app.command()
def targets(
    examples: Annotated[list[int], typer.Option(min=1, help="How many; give it once for each size.")] = [10_000, 100_000, 1_000_000],  # noqa: B006
    classes: Annotated[list[int], typer.Option(min=2, help="How many; give it once for each size.")] = [100, 1_000, 10_000],  # noqa: B006
    candidates: Annotated[int, typer.Option(min=1, help="In every set.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Examples that are read and written at once.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time spent on each row.")] = 1.0,
    inaturalist: Annotated[bool, typer.Option(help="Measure the size of iNaturalist 2018 too.")] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.", show_default=False)] = None,
) -> None:
    """Memory of candidates and targets, and the time to read and write a batch, as examples and classes grow; beside a dense form."""
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
    made = found["environment"]
    console.print(
        f"Batches of {batch}, median. Dense: a boolean and a float matrix, indexed. {made['hardware']}, threads: {made['threads']}."
    )
    for name, powers in found["exponents"].items():
        shown = [
            f"{letter}^{round(powers[key], 2) + 0.0:.2f}"
            for letter, key in (("N", "examples"), ("C", "classes"))
            if powers[key] is not None
        ]
        if shown:
            console.print(f"{name:7} grows as {' · '.join(shown)}")
    _write(found, json_out)


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["set_sizes"]
    ours, dense = row["milliseconds"], row["dense_milliseconds"]
    cells = [f"{row['examples']:,}", f"{row['classes']:,}", str(low) if low == high else f"{low}–{high}"]
    cells += [f"{row['bytes'] / 1e6:,.1f}", f"{row['dense_bytes'] / 1e6:,.0f}", f"{ours['read']:.3f}", f"{ours['write']:.3f}"]
    if dense is None:
        return [*cells, "–", "–"]
    both = dense["read"] + dense["write"]
    return [*cells, f"{both:.3f}", f"{(ours['read'] + ours['write']) / both:.2f}"]


def _write(found: dict[str, Any], path: Path | None) -> None:
    if path is None:
        return
    from ltpll.files import write_atomically

    write_atomically(path, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
    console.print(f"Figures: {path.resolve()}", markup=False, soft_wrap=True)
