"""Small files of labelling tools and detectors."""

import json


def annotation(annotator, *choices, question="animal", **more):
    """An annotation of Label Studio."""
    result = {
        "from_name": question,
        "to_name": "photo",
        "type": "choices",
        "value": {"choices": list(choices)},
    }
    return {
        "completed_by": annotator,
        "result": [result],
        "was_cancelled": False,
        "ground_truth": False,
        **more,
    }


def task(number, url, *annotations):
    return {"id": number, "data": {"image": url}, "annotations": list(annotations)}


def written(folder, content, name="labels.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def sets(table):
    """The candidate names of each row."""
    return [
        [table.candidates.classes[c] for c in table.candidates.row(i)] for i in range(len(table))
    ]
