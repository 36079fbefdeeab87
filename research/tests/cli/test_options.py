"""Whatever its options: `benchmark` succeeds, or fails with one sentence and writes nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll_research.cli import app
from ltpll_research.image_sets.prepared import write_image_set
from support.any_options import BOTH, NAME, NUMBER, WHOLE, check, some
from support.pictures import coloured_images

BENCHMARK = {
    "--imbalance": NUMBER,
    "--ambiguity": NUMBER,
    "--superclass": st.just(None),
    "--width": st.sampled_from(["-1", "0", "1", "2", "x"]),
    "--engine": NAME | st.sampled_from(["eager", "captured", "compiled"]),
    "--measure-every": WHOLE,
    "--schedule": NAME | st.sampled_from(["cosine", "step"]),
    "--milestones": WHOLE,
    "--draw": NAME | st.sampled_from(["seeded", "authors"]),
    "--data-root": st.sampled_from(["nowhere"]),
}


SET = ("lr", "batch-size", "views", "precision", "width", "schedule", "milestones", "draw")


def as_typed(drawn):
    """The options as words; those without an option of their own are given by --set."""
    for name, value in drawn:
        if name.removeprefix("--") in SET:
            yield from ("--set", f"{name.removeprefix('--').replace('-', '_')}={value}")
        else:
            yield from (name,) if value is None else (name, value)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small image set."""
    folder = tmp_path_factory.mktemp("options")
    images = coloured_images(n_classes=3, per_class=4, per_test_class=2, side=8)
    write_image_set(images, folder / "data")
    return folder


@settings(max_examples=12)
@given(drawn=some(BOTH | BENCHMARK), epochs=st.sampled_from(["1", "2", "0", "-1", "few"]))
def test_training_a_benchmark_succeeds_or_fails_without_writing(place, drawn, epochs):
    root = (
        [] if any(name == "--data-root" for name, _ in drawn) else ["--data-root", place / "data"]
    )
    width = [] if any(name == "--width" for name, _ in drawn) else ["--set", "width=2"]
    check(app, place, ["benchmark", "cifar10", "--epochs", epochs, *root, *width, *as_typed(drawn)])
