"""The README and the docs say what is true: their code runs, and their generated blocks are up to date."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltpll.data.synthetic import four_squares, uniform_candidates

ROOT = Path(__file__).resolve().parents[1]


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)


def test_the_readmes_table_is_cleaned_and_learned(tmp_path, monkeypatch):
    x, y = four_squares([40, 60, 80, 120], seed=0)
    names = np.asarray(["ant", "bee", "cat", "fox"])
    sets = uniform_candidates(y, 4, 0.3, seed=0)
    columns = {"candidates": ["|".join(names[sets.row(i)]) for i in range(len(y))], "width": x[:, 0], "height": x[:, 1]}
    pd.DataFrame(columns).to_csv(tmp_path / "animals.csv", index=False)
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    table_example, parts_example, *_ = python_blocks("README.md")
    exec(compile(table_example, "README.md", "exec"), space)
    assert np.mean(space["table"]["label"] == names[y]) > 0.9
    assert np.mean(space["predicted"] == names[y]) > 0.9
    space |= {"features": space["features"][::4], "table": space["table"][::4]}
    exec(compile(parts_example.replace("CORR()", "CORR(), steps=20"), "README.md", "exec"), space)
    assert space["search"].best_params_["rebalancer__momentum"] in (0.9, 0.99)


def test_the_readmes_examples_run_and_learn():
    *_, trainer_example, loop_example, method_example = python_blocks("README.md")
    space: dict = {}
    exec(compile(trainer_example, "README.md", "exec"), space)
    y = space["y"]
    assert np.mean(space["predicted"] == y) > 0.9
    assert np.mean(space["cleaned"].numpy() == y) > 0.9
    exec(compile(loop_example, "README.md", "exec"), space)
    assert np.mean(space["targets"].labels().numpy() == y) > 0.9
    exec(compile(method_example, "README.md", "exec"), space)
    made = space["Uniform"]()
    model = space["build_model"]("mlp", seed=0, n_inputs=2, n_classes=4)
    trained = space["PartialLabelTrainer"](model, made, epochs=2).fit(space["x"], space["candidates"])
    assert trained.epoch == 2


def test_generated_blocks_are_what_the_registries_and_the_records_say():
    result = subprocess.run([sys.executable, "tools/render_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
