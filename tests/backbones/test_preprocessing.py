import math

import pytest
import torch

from ltpll.backbones import Preprocessing
from support.refusals import refusal


def test_pictures_with_the_given_mean_and_deviation_are_normalised_to_zero_and_one():
    preprocessing = Preprocessing(2, mean=(0.2, 0.4, 0.6), std=(0.1, 0.2, 0.2))
    pixels = torch.tensor([[51, 102, 153], [76, 102, 204]], dtype=torch.uint8).T.reshape(1, 3, 1, 2)
    expected = [[0, (76 / 255 - 0.2) / 0.1], [0, 0], [0, 1]]
    torch.testing.assert_close(
        preprocessing.normalise(pixels)[0, :, 0], torch.tensor(expected), atol=1e-5, rtol=0
    )


def test_a_record_restores_it():
    preprocessing = Preprocessing(96, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "crop", 110, "bicubic")
    assert Preprocessing.from_record(preprocessing.record()) == preprocessing


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"side": 0},
        {"side": 10**30},
        {"side": "224"},
        {"side": [224]},
        {"mean": 0.5},
        {"mean": [0, 0]},
        {"mean": [0, 0, "0"]},
        {"std": [1, 1, 0]},
        {"std": [1, 1, math.nan]},
        {"std": [1, 1, math.inf]},
        {"mean": [10**400, math.inf, 0]},
        {"fit": "shrink"},
        {"fit": ["crop"]},
        {"resample": None},
        {"resize": 100},
        {"resize": 10**6},
        {"resize": -1},
        {"unknown": 1},
    ],
)
def test_a_damaged_record_is_refused(record):
    refusal(lambda: Preprocessing.from_record(record))
