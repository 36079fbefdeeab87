"""A registry is a read-only mapping from names to classes, with helpful errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pytest

from ltpll.errors import InputError, UnknownNameError
from ltpll.registry import Configurable, Registry
from ltpll.settings import Count, Fractions, Positive
from support.refusals import refusal


class Shape:
    name = ""


class Circle(Shape):
    name = "circle"

    def __init__(self, radius: float = 1.0) -> None:
        self.radius = radius


class Square(Shape):
    name = "square"

    def __init__(self, side: float, *, canvas: int = 3) -> None:
        self.side = side
        self.canvas = canvas


class Point(Shape):
    name = "point"


@pytest.fixture
def shapes():
    registry = Registry("shape", Shape)
    for cls in (Square, Circle, Point):
        registry.register(cls)
    return registry


def test_a_registry_is_a_mapping_in_the_order_of_its_names(shapes):
    assert list(shapes) == ["circle", "point", "square"]
    assert len(shapes) == 3
    assert dict(shapes) == {"circle": Circle, "point": Point, "square": Square}
    assert not hasattr(shapes, "__setitem__")


def test_membership_and_get_work_for_known_and_unknown_names(shapes):
    assert "circle" in shapes
    assert "cube" not in shapes
    assert None not in shapes
    assert shapes.get("circle") is Circle
    assert shapes.get("cube") is None
    assert shapes.get("cube", Point) is Point


@pytest.mark.parametrize(
    ("name", "guess"), [("circel", "circle"), ("Square", "square"), ("pont", "point")]
)
def test_a_near_miss_is_answered_with_the_name_that_was_meant(shapes, name, guess):
    message = refusal(lambda: shapes[name], UnknownNameError)
    assert (
        message
        == f"There is no shape {name!r}. Did you mean {guess!r}? Available: circle, point, square."
    )


@pytest.mark.parametrize("name", ["zzz", "", 3, None])
def test_a_name_unlike_all_others_is_answered_with_the_list_only(shapes, name):
    assert (
        refusal(lambda: shapes[name], UnknownNameError)
        == f"There is no shape {name!r}. Available: circle, point, square."
    )


def test_an_unknown_name_is_a_key_error_too(shapes):
    with pytest.raises(KeyError):
        shapes["cube"]


@pytest.mark.parametrize("thing", [int, Circle(), "circle", None])
def test_registering_anything_but_a_subclass_is_refused(shapes, thing):
    message = refusal(lambda: shapes.register(thing))
    assert "inherits from Shape" in message
    assert len(shapes) == 3


class Nameless(Circle):
    pass


class Numbered(Shape):
    name = 3


class Blank(Shape):
    name = ""


@pytest.mark.parametrize("cls", [Nameless, Numbered, Blank])
def test_a_class_that_does_not_define_a_name_is_refused(shapes, cls):
    assert "sets its own `name`" in refusal(lambda: shapes.register(cls))
    assert shapes["circle"] is Circle


def test_a_taken_name_is_refused_with_its_owner_and_the_owner_stays(shapes):
    other = type("Other", (Shape,), {"name": "circle"})
    assert refusal(lambda: shapes.register(other)).endswith(f"{__name__}.Circle.")
    assert shapes["circle"] is Circle


def test_registering_twice_is_the_same_as_once_and_gives_the_class_back(shapes):
    assert shapes.register(Circle) is Circle
    assert len(shapes) == 3


@pytest.mark.parametrize(
    ("before", "after", "replaces"), [("__main__", "__main__", True), ("other", "__main__", False)]
)
def test_only_a_class_of_a_notebook_is_replaced_when_its_cell_is_run_again(before, after, replaces):
    registry = Registry("shape", Shape)
    first, second = (
        type("Star", (Shape,), {"name": "star", "__module__": module}) for module in (before, after)
    )
    registry.register(first)
    if not replaces:
        assert "is taken by other.Star" in refusal(lambda: registry.register(second))
    else:
        assert registry.register(second) is second
    assert registry["star"] is (second if replaces else first)


def test_register_is_a_decorator():
    registry = Registry("shape", Shape)

    @registry.register
    class Star(Shape):
        name = "star"

    assert registry["star"] is Star


# ---- discovery -----------------------------------------------------------------------------------


def test_discovery_finds_the_classes_defined_in_the_files_of_the_package_and_no_others(
    tmp_path, monkeypatch
):
    (tmp_path / "ltpll_zoo_base.py").write_text(
        "class Animal: pass\nclass Wolf(Animal):\n    name = 'wolf'\n"
    )
    zoo = tmp_path / "ltpll_zoo"
    zoo.mkdir()
    (zoo / "__init__.py").write_text(
        "from ltpll_zoo_base import Animal\nclass Root(Animal):\n    name = 'root'\n"
    )
    (zoo / "cat.py").write_text(
        "from ltpll_zoo_base import Animal, Wolf\n"
        "class Cat(Animal):\n    name = 'cat'\n"
        "Kitten = Cat\n"
        "class Stone:\n    name = 'stone'\n"
        "lion = Cat()\n"
    )
    (zoo / "dog.py").write_text(
        "from ltpll_zoo.cat import Cat\nclass Dog(Cat):\n    name = 'dog'\nclass Pup(Dog):\n    "
        "name = 'pup'\n"
    )
    (zoo / "notes.txt").write_text("not a module")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        base = __import__("ltpll_zoo_base")
        registry = Registry("animal", base.Animal).register_package("ltpll_zoo", [str(zoo)])
        assert list(registry) == ["cat", "dog", "pup"]
        assert registry["pup"].__module__ == "ltpll_zoo.dog"
        assert (
            sys.modules["ltpll_zoo"].Pup is registry["pup"]
        )  # importable from the package without a line in its __init__
    finally:
        for name in [name for name in sys.modules if name.startswith("ltpll_zoo")]:
            del sys.modules[name]


# ---- creation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "context", "options", "expected"),
    [
        ("circle", None, {}, {"radius": 1.0}),
        ("circle", {"n_classes": 4}, {"radius": 2.0}, {"radius": 2.0}),
        ("circle", {"radius": 5.0}, {}, {"radius": 5.0}),
        ("circle", {"radius": 5.0}, {"radius": 2.0}, {"radius": 2.0}),
        ("square", {"canvas": 9, "n_classes": 4}, {"side": 1.5}, {"side": 1.5, "canvas": 9}),
        ("square", {"side": 2.0}, {}, {"side": 2.0, "canvas": 3}),
        ("point", {"side": 2.0}, {}, {}),
    ],
)
def test_creation_passes_the_options_and_only_the_context_that_is_wanted(
    shapes, name, context, options, expected
):
    made = shapes.create(name, context, **options)
    assert type(made) is shapes[name]
    assert vars(made) == expected


def test_an_unknown_option_is_refused_with_the_known_ones(shapes):
    message = refusal(lambda: shapes.create("square", {"canvas": 1}, side=2, colour="red"))
    assert message == "The shape 'square' has no option 'colour'; its options: canvas, side."


def test_an_option_for_a_class_that_has_none_is_refused(shapes):
    assert (
        refusal(lambda: shapes.create("point", side=2))
        == "The shape 'point' has no option 'side'; its options: none."
    )


def test_a_missing_argument_is_named(shapes):
    assert (
        refusal(lambda: shapes.create("square", {"canvas": 1}))
        == "The shape 'square' needs 'side', which is not known here."
    )


def test_creating_an_unknown_name_lists_the_alternatives(shapes):
    assert "Available: circle, point, square." in refusal(
        lambda: shapes.create("cube", side=1), UnknownNameError
    )


class Tower(Configurable):
    """As in a plug-in: some types say what is allowed, others say nothing that is known here."""

    def __init__(
        self,
        height: Positive = 1.0,
        floors: Count | None = None,
        slopes: Fractions = (0.1, 0.2),
        kind: Literal["round", "square"] = "round",
        rooms: Literal["all"] | Sequence[str] = "all",
        level: Literal[1, 2] = 1,
        colour: Annotated[str, "any"] = "red",
    ) -> None:
        self.height, self.floors, self.slopes, self.kind = height, floors, slopes, kind
        self.rooms, self.level, self.colour = rooms, level, colour


class Leaning(Tower):
    def __init__(self, angle: Positive = 0.1) -> None:
        super().__init__(floors=0 if angle > 1 else 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 0}, "Tower's height is 0: it must be a number above 0."),
        ({"floors": 1.5}, "Tower's floors is 1.5: it must be a whole number of at least 1."),
        ({"slopes": (0.5,)}, "2 values, each a number between 0 and 1."),
        ({"slopes": (0.5, 2)}, "2 values, each a number between 0 and 1."),
        ({"kind": "tall"}, "Tower's kind is 'tall': it must be 'round' or 'square'."),
    ],
)
def test_options_are_checked_by_their_types(options, message):
    assert refusal(lambda: Tower(**options), InputError).endswith(message)
    with pytest.raises(InputError):
        Tower().set_params(**options)


def test_numbers_of_numpy_and_none_are_taken_and_types_that_are_not_known_are_not_checked():
    made = Tower(np.float32(2), np.int64(3), [0, 1], rooms=["attic"], level=2, colour="blue")
    assert made.fresh().get_params() == made.get_params()
    assert type(made.floors) is np.int64  # as it was given
    assert Tower(floors=None).floors is None


def test_a_subclass_is_checked_under_its_own_name_also_what_it_passes_on():
    assert refusal(lambda: Leaning(-1), InputError).startswith("Leaning's angle is -1")
    assert refusal(lambda: Leaning(2), InputError).startswith("Leaning's floors is 0")
    with pytest.raises(TypeError, match="unexpected keyword argument 'hight'"):
        Tower(hight=2)
