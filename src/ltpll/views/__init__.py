"""Views: random variants of the examples of a batch, drawn on the device of the batch."""

from __future__ import annotations

from ltpll.views.basic import Cutout, Jitter, Shift, ViewPolicy, Views, ViewSource
from ltpll.views.features import FeatureViews
from ltpll.views.images import VIEW_POLICIES, ImageViews

__all__ = [
    "VIEW_POLICIES",
    "Cutout",
    "FeatureViews",
    "ImageViews",
    "Jitter",
    "Shift",
    "ViewPolicy",
    "ViewSource",
    "Views",
]
