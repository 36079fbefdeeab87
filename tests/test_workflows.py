"""Continuous integration runs what a person types."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands(job):
    """The commands of a job, with the values of its matrix in them."""
    for step in job["steps"]:
        for line in str(step.get("run", "")).splitlines():
            name = re.search(r"\$\{\{ matrix\.(\w+) \}\}", line)
            rows = job["strategy"]["matrix"]["include"] if name else [{}]
            yield from (
                line if name is None else line.replace(name[0], row[name[1]]) for row in rows
            )


def test_every_command_of_a_workflow_is_a_target_of_make():
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    found = []
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            found += commands(job)
    assert {"make test", "make lowest", "make newest", "make interop"} <= set(found)
    assert {command.removeprefix("make ") for command in found} <= targets


def test_every_supported_python_is_tested_and_the_oldest_with_the_oldest_versions():
    jobs = yaml.safe_load(WORKFLOWS[0].read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    classified = re.findall(
        r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert matrix["python-version"] == classified
    versions = {
        row["target"]: row["python-version"]
        for row in jobs["versions"]["strategy"]["matrix"]["include"]
    }
    assert versions["lowest"] == classified[0]


def test_forms_and_hooks_are_valid():
    for path in [
        ROOT / ".pre-commit-config.yaml",
        *(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"),
    ]:
        assert yaml.safe_load(path.read_text(encoding="utf-8"))
