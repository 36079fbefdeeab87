"""The `data describe` command: the candidate sets of experiments on image sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import ltpll_research.cli.options as opt
from ltpll.cli.describe import AsJson, Top, print_description
from ltpll.cli.options import data_option
from ltpll.cli.training import given
from ltpll.errors import InputError
from ltpll.runs.run import read_result


def describe(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Image set, or folder of a finished benchmark run."),
    ],
    imbalance: opt.Imbalance = None,
    ambiguity: opt.Ambiguity = None,
    superclass: opt.Superclass = None,
    seed: Annotated[int | None, data_option(help="Seed of the subset and the sets.")] = None,
    root: opt.DataRoot = None,
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Describe the candidate sets of an experiment, drawn as `ltpll-research benchmark` draws them."""
    import numpy as np

    from ltpll.convert.candidate_files import LabelledSets
    from ltpll_research.benchmark import redraw_candidates
    from ltpll_research.image_sets.prepared import IMAGE_SETS

    settings = given(imbalance=imbalance, ambiguity=ambiguity, superclass=superclass, seed=seed)
    path = Path(source).expanduser()
    if source in IMAGE_SETS:
        config = {"experiment": "images", "data": source, **settings}
    elif settings:
        raise InputError(
            f"--{next(iter(settings))} is for image sets ({', '.join(IMAGE_SETS)}): leave it out for {source}."
        )
    elif path.is_dir() or path.suffix == ".json":
        config = read_result(path)["config"]
    else:
        raise InputError(f"{source} is not an image set ({', '.join(IMAGE_SETS)}) or a run folder.")
    drawn = redraw_candidates(config, root)
    words = drawn.description if source in IMAGE_SETS else f"{source}: {drawn.description}"
    sets = LabelledSets(drawn.candidates, np.asarray(drawn.labels))
    print_description(words, sets, top, as_json=as_json)
