"""The page on which people answer what the labels of rows are: one offline file, or served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ltpll.cleaning.audit import Answers
from ltpll.cleaning.results import CleanedTable, Numbers
from ltpll.cleaning.review import Questions
from ltpll.cleaning.stored_tables import small_pictures
from ltpll.errors import InputError
from ltpll.report import templates

FEW, LARGE, SMALL = 300, 480, 160  # pictures that are shown large, and pixels of their sides


def render_review_page(
    table: CleanedTable,
    questions: Questions,
    answers: Answers,
    *,
    pictures: Mapping[int, bytes] | None = None,
    served: bool = False,
) -> str:
    """The page as HTML.

    Args:
        table: A table as its run has stored it, without answers.
        questions: The rows to ask about, in their order.
        answers: What was answered before, which the page shows as done.
        pictures: JPEG files by row; by default those that the run has stored.
        served: Whether the page sends its answers to where it came from.
    """
    before = dict(zip(answers.rows.tolist(), answers.sets, strict=True))
    pictures = table.pictures if pictures is None else pictures
    rows = []
    for i, asked, probability in zip(*(part.tolist() for part in questions), strict=True):
        row = {
            "id": str(table.ids[i]),
            "set": table.candidates[table.offsets[i] : table.offsets[i + 1]].tolist(),
            "other": int(table.labels.outside[i]),
            "label": int(table.labels.label[i]),
            "shown": [(name, one[i]) for name, one in table.shown.items() if one[i] is not None],
            "asked": asked,
            "probability": round(probability, 6),
        }
        rows.append(row | ({"answer": list(before[i])} if i in before else {}))
    urls = [templates.jpeg_url(pictures[i]) if i in pictures else None for i in questions.rows]
    return templates.render(
        "review.html",
        title=f"What are the labels of {Path(str(table.record['source']['table'])).name}?",
        styles=[templates.read_asset("page.css"), templates.read_asset("review.css")],
        scripts=[templates.read_asset("review.js")],
        connect="'self'" if served else "'none'",
        served=served,
        # The script inserts all text as text, never as markup, and without bidi controls.
        data={
            "key": f"ltpll-review-{table.record.get('key', '')}",
            "classes": [str(name) for name in table.classes],
            "separator": table.separator,
            "served": served,
            "rows": rows,
        },
        jpegs=templates.markup(json.dumps(urls)),
    )


def pictures_of_rows(table: CleanedTable, rows: Numbers) -> dict[int, bytes]:
    """JPEG files of some rows, from the folder of pictures if that is still where it was."""
    folder = table.record["source"].get("images")
    if folder is None or not Path(folder).is_dir():
        return dict(table.pictures)
    paths = table.ids if table.paths is None else table.paths
    side = LARGE if len(rows) <= FEW else SMALL
    with suppress(InputError):
        return {**table.pictures, **small_pictures(Path(folder), paths, rows, side)}
    return dict(table.pictures)
