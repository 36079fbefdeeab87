"""Commands that draw fail before they work where matplotlib is missing."""

import sys

import pytest

from support.commands import research_here as research


@pytest.fixture
def without_matplotlib(monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_matplotlib")
@pytest.mark.parametrize(
    "command",
    [
        ("toy", "--seeds", "1", "--out", "out"),
        ("tsne", "no-such-run", "--device", "cpu", "--out", "out/tsne.png"),
        (
            "reproduce",
            "prior",
            "--device",
            "cpu",
            "--out",
            "out/images",
            "--data-root",
            "no-such-data",
        ),
    ],
    ids=["toy", "tsne", "reproduce"],
)
def test_commands_that_draw_are_refused_without_matplotlib_before_they_work(
    command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    message = research(*command, status=2)
    assert (
        message
        == "Drawing a figure needs matplotlib, which is not installed: pip install ltpll-research."
    )
    assert not (tmp_path / "out").exists()
