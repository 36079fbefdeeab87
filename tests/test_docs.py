"""README, CONTRIBUTING and docs: their code runs, their generated blocks are up to date, their links and versions are right."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from ltpll import PartialLabelClassifier, __version__
from ltpll.data.synthetic import four_squares, uniform_candidates
from ltpll.runs.schema import check_record
from tools import render_docs

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


def test_the_examples_for_contributors_learn_and_their_test_passes():
    space: dict = {}
    for block in python_blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), space)
    space["test_targets_are_a_tempered_softmax_over_the_candidates"]()
    parts = {"method": space["TemperedPRODEN"](0.5), "rebalancer": space["MeanPrediction"](), "extras": [space["LogitPenalty"]()]}
    x, y = four_squares([60] * 4, seed=0)
    fitted = PartialLabelClassifier(**parts, epochs=10, device="cpu").fit(x, uniform_candidates(y, 4, 0.3, seed=0))
    assert fitted.score(x, y) > 0.9
    assert fitted.class_prior_.sum() == pytest.approx(1, abs=1e-4)


def test_the_citation_names_this_version_and_the_paper_in_the_readme():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (__version__, project["license"])
    (paper,) = cited["references"]
    bibtex = re.search(r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
    assert f"{{{paper['title']}}}" in bibtex
    assert " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]) in bibtex
    assert f"{{{paper['year']}}}" in bibtex


def test_the_workflow_calls_make_test_with_every_supported_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert next(step["run"] for step in job["steps"] if "run" in step) == "make test"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert job["strategy"]["matrix"]["python-version"] == supported


def test_generated_blocks_are_what_the_registries_and_the_records_say(capsys):
    assert render_docs.main(["--check"]) == 0, capsys.readouterr().out


def test_the_runs_behind_the_page_on_the_anchor_are_whole_and_name_the_commit_of_their_code():
    for record in render_docs.beyond_runs():
        check_record(record)
        assert re.fullmatch(r"[0-9a-f]{7,}(\+changes)?", record["commit"])
        assert record["curves"]["epoch"][-1] == record["config"]["epochs"]


def test_the_page_on_the_anchor_shows_the_mean_of_the_final_rule():
    final = {"bounds": "point", "warmup": 0.5}  # and RECORDS in all epochs, which was the default then
    runs = [run for run in render_docs.beyond_runs() if run["config"]["options"].get("anchor") == final]
    mean = np.mean([100 * run["last"]["mean-target"]["balanced_accuracy"] for run in runs])
    row = next(
        line
        for line in (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| **anchor + balanced-head")
    )
    assert f"n = {len(runs)}" in row
    assert f" {mean:.1f} ± " in row


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
