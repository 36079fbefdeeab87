"""Runs the scripts in examples/ and writes docs/gallery: a page for each with its prose, code,
output and figure, and an index.

A script begins with a docstring (the title, a blank line, an introduction) and is divided into
cells by lines `# %% Heading`, where the heading is optional. The comment lines that follow are
prose in Markdown, the rest of the cell is code. The figure is the file NAME.png that the script
saves in the current folder. The scripts in `NOTEBOOKS` become notebooks, too. `--check` runs
nothing and compares only prose and code.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = (
    "crowd_labels",
    "embeddings",
    "look_alike_classes",
    "own_network_own_loop",
    "own_method",
)  # in the order of the index
NOTEBOOKS = ("crowd_labels", "embeddings")
SCRIPTS, PAGES = ROOT / "examples", ROOT / "docs" / "gallery"
THUMBNAIL = (360, 160)  # pixels, at most
OUTPUT = "```text\n{}\n```"
MEASURED = "*Output and figure: {}*"


@dataclass(frozen=True)
class Cell:
    """A part of a script: prose, and the code after it."""

    prose: str
    code: str
    n_before: int  # lines of the script before the code


@dataclass(frozen=True)
class Script:
    """A script, divided into cells."""

    name: str
    title: str
    introduction: str
    cells: tuple[Cell, ...]

    @property
    def sentence(self) -> str:
        """The first sentence of the introduction."""
        return re.split(r"(?<=\.)\s", self.introduction, maxsplit=1)[0]


@dataclass(frozen=True)
class Results:
    """What a script printed in each cell, the figure that it saved, and where it ran."""

    printed: tuple[str, ...]
    figure: bytes
    figure_cell: int
    measured: str


def read_script(name: str) -> Script:
    """Divide a script into cells."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    title, _, introduction = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
    after_docstring = ast.parse(text).body[0].end_lineno or 0
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    cells = [_cell("", lines[after_docstring : starts[0]], after_docstring)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        cells.append(
            _cell(lines[start].removeprefix("# %%").strip(), lines[start + 1 : end], start + 1)
        )
    return Script(name, title.removesuffix("."), _joined(introduction.splitlines()), tuple(cells))


def _cell(heading: str, lines: Sequence[str], n_before: int) -> Cell:
    n_prose = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    n_blank = next((i for i, line in enumerate(lines[n_prose:]) if line), 0)
    paragraphs = [f"## {heading}"] * bool(heading) + [
        _joined([line.removeprefix("#").strip() for line in lines[:n_prose]])
    ]
    return Cell(
        "\n\n".join(paragraphs).strip(),
        "\n".join(lines[n_prose:]).strip("\n"),
        n_before + n_prose + n_blank,
    )


def _joined(lines: Sequence[str]) -> str:
    """Paragraphs on one line each."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", "\n".join(lines).strip())


def run_script(script: Script) -> Results:
    """Run a script cell by cell in an empty folder."""
    import matplotlib as mpl

    from ltpll.runs.environment import environment

    mpl.use("Agg")
    space: dict[str, Any] = {"__name__": "__main__"}
    printed, figure, figure_cell = [], b"", -1
    with mpl.rc_context(), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = Path(f"{script.name}.png")
        for number, cell in enumerate(script.cells):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(
                    compile(
                        "\n" * cell.n_before + cell.code, str(SCRIPTS / f"{script.name}.py"), "exec"
                    ),
                    space,
                )
            printed.append("\n".join(line.rstrip() for line in output.getvalue().splitlines()))
            if path.exists() and figure_cell < 0:
                figure, figure_cell = path.read_bytes(), number
    made = environment("cpu")
    measured = (
        f"{made['hardware']} ({made['threads']} thread{'s' * (made['threads'] > 1)}), Python "
        f"{made['python']}, torch {made['torch']}, "
        f"scikit-learn {made['scikit-learn']}, commit {made['commit']}. Other machines and "
        "versions give slightly different numbers."
    )
    return Results(tuple(printed), figure, figure_cell, measured)


# ---- pages ---------------------------------------------------------------------------------------


def page(script: Script, results: Results | None) -> str:
    """The page of a script; without results, only what is known without running it."""
    run = f"Run it: `python examples/{script.name}.py`"
    if script.name in NOTEBOOKS:
        run += f", or open the notebook `examples/{script.name}.ipynb`"
    parts = [f"# {script.title}", script.introduction, run + "."]
    for number, cell in enumerate(script.cells):
        parts += [cell.prose] * bool(cell.prose) + [f"```python\n{cell.code}\n```"]
        if results is not None and results.printed[number]:
            parts.append(OUTPUT.format(results.printed[number]))
        if results is not None and number == results.figure_cell:
            parts.append(f"![{script.title}]({script.name}.png)")
    if results is not None:
        parts.append(MEASURED.format(results.measured))
    return "\n\n".join([*parts, "[All examples](index.md)"]) + "\n"


def without_results(text: str) -> str:
    """A page without what depends on running the script."""
    for block in (OUTPUT, MEASURED):
        before, after = map(re.escape, block.split("{}"))
        text = re.sub(rf"^{before}.*?{after}\n\n", "", text, flags=re.S | re.M)
    return re.sub(r"^!\[.*\]\(\w+\.png\)\n\n", "", text, flags=re.M)


def index(scripts: Sequence[Script]) -> str:
    """The page that lists all examples."""
    lines = [
        "# Gallery",
        "",
        (
            "Short scripts, each with an explanation, its output and a figure. They need no "
            "download and run in seconds on a CPU; beside the"
        ),
        "package they need matplotlib and pandas (`pip install matplotlib pandas`).",
        "",
        "| | |",
        "|---|---|",
    ]
    for script in scripts:
        picture = f"[![{script.title}](thumbnails/{script.name}.png)]({script.name}.md)"
        lines.append(f"| {picture} | **[{script.title}]({script.name}.md)**<br>{script.sentence} |")
    return "\n".join(lines) + "\n"


def thumbnail(figure: bytes) -> bytes:
    """A small copy of a figure, in few colours."""
    picture = Image.open(io.BytesIO(figure)).convert("RGB")
    picture.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
    small = io.BytesIO()
    picture.quantize(64).save(small, "PNG", optimize=True)
    return small.getvalue()


# ---- notebooks -----------------------------------------------------------------------------------


def notebook(script: Script, results: Results | None) -> dict[str, Any]:
    """The script as a notebook (nbformat 4.5)."""
    cells = [_markdown_cell(f"# {script.title}\n\n{script.introduction}")]
    for number, cell in enumerate(script.cells):
        cells += [_markdown_cell(cell.prose)] * bool(cell.prose)
        outputs: list[dict[str, Any]] = []
        if results is not None and results.printed[number]:
            outputs.append(
                {
                    "name": "stdout",
                    "output_type": "stream",
                    "text": _lines(results.printed[number] + "\n"),
                }
            )
        if results is not None and number == results.figure_cell:
            data = {
                "image/png": base64.b64encode(results.figure).decode(),
                "text/plain": [f"<{script.title}>"],
            }
            outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
        cells.append(
            {
                "cell_type": "code",
                "execution_count": number + 1,
                "metadata": {},
                "outputs": outputs,
                "source": _lines(cell.code),
            }
        )
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {
        "cells": [{"id": f"cell-{i}", **cell} for i, cell in enumerate(cells)],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _markdown_cell(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def notebook_without_results(found: dict[str, Any]) -> dict[str, Any]:
    """A notebook without what depends on running the script."""
    return {
        **found,
        "cells": [
            {**cell, "outputs": []} if cell["cell_type"] == "code" else cell
            for cell in found["cells"]
        ],
    }


# ---- files ---------------------------------------------------------------------------------------


def write(scripts: Sequence[Script]) -> None:
    (PAGES / "thumbnails").mkdir(parents=True, exist_ok=True)
    for script in scripts:
        results = run_script(script)
        if not results.figure:
            raise SystemExit(f"error: examples/{script.name}.py saved no {script.name}.png.")
        (PAGES / f"{script.name}.md").write_text(page(script, results), encoding="utf-8")
        (PAGES / f"{script.name}.png").write_bytes(results.figure)
        (PAGES / "thumbnails" / f"{script.name}.png").write_bytes(thumbnail(results.figure))
        if script.name in NOTEBOOKS:
            text = json.dumps(notebook(script, results), indent=1, ensure_ascii=False) + "\n"
            (SCRIPTS / f"{script.name}.ipynb").write_text(text, encoding="utf-8")
        print(f"rendered: {script.name}")
    (PAGES / "index.md").write_text(index(scripts), encoding="utf-8")


def stale(scripts: Sequence[Script]) -> list[str]:
    """The files that do not show what the scripts say now."""

    def text(path: Path) -> str:
        return path.read_text(encoding="utf-8") if path.exists() else ""

    fresh = {PAGES / "index.md": text(PAGES / "index.md") == index(scripts)}
    for script in scripts:
        path = PAGES / f"{script.name}.md"
        fresh[path] = without_results(text(path)) == page(script, None)
        for picture in (PAGES / f"{script.name}.png", PAGES / "thumbnails" / f"{script.name}.png"):
            fresh[picture] = picture.exists()
        if script.name in NOTEBOOKS:
            path = SCRIPTS / f"{script.name}.ipynb"
            fresh[path] = path.exists() and notebook_without_results(
                json.loads(text(path))
            ) == notebook(script, None)
    unlisted = {path.stem for path in SCRIPTS.glob("*.py")} ^ set(EXAMPLES)
    return [str(path.relative_to(ROOT)) for path, is_fresh in fresh.items() if not is_fresh] + [
        f"examples/{name}.py" for name in unlisted
    ]


def main(arguments: Sequence[str]) -> int:
    scripts = [read_script(name) for name in EXAMPLES]
    if "--check" not in arguments:
        write(scripts)
        return 0
    if found := stale(scripts):
        print("out of date: " + ", ".join(found) + " (make gallery)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
