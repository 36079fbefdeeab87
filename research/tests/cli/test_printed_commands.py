"""The commands that are printed to be copied: a shell takes every path in them for one word."""

import shlex

from ltpll_research.image_sets.prepared import load_image_set
from support.refusals import refusal

NAME = "it's mine; $(x) & more"


def test_every_printed_command_can_be_pasted_into_a_shell(tmp_path):
    folder = tmp_path / NAME
    folder.mkdir()
    missing = refusal(lambda: load_image_set("cifar10", folder))
    assert shlex.split(missing.split("`")[1]) == [
        "ltpll-research",
        "data",
        "prepare",
        "cifar10",
        "--data-root",
        str(folder),
    ]
