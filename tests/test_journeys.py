"""The counts of tools/journeys.py: first calls only, and a return is a step to a file left before."""

import sys

import journeys
from ltpll.formatting import counted, format_duration


def test_a_return_is_a_step_to_a_file_that_was_left_before():
    found = journeys.summary(
        [("a", "f"), ("a", "g"), ("b", "f"), ("a", "h"), ("c", "f"), ("b", "g")]
    )
    assert (found["files"], found["functions"], found["returns"]) == (3, 6, 2)
    assert found["visited"] == [
        {"file": "a", "functions": 3, "returns": 1},
        {"file": "b", "functions": 2, "returns": 1},
        {"file": "c", "functions": 1, "returns": 0},
    ]


def test_only_the_first_call_of_a_function_of_this_project_counts():
    calls = journeys.FirstCalls()
    sys.setprofile(calls)
    try:
        for n in (1, 2):
            counted(n, "file")
            format_duration(3.0 * n)
    finally:
        sys.setprofile(None)
    assert calls.path == [
        ("ltpll/formatting.py", "counted"),
        ("ltpll/formatting.py", "format_duration"),
    ]
