"""Views: random variants of the examples of a batch, drawn on the device of the batch."""

from __future__ import annotations

from ltpll.views.basic import Jitter, ViewPolicy, Views, ViewSource
from ltpll.views.features import FeatureViews
from ltpll.views.images import VIEW_POLICIES, ImageViews

__all__ = [
    "VIEW_POLICIES",
    "FeatureViews",
    "ImageViews",
    "Jitter",
    "ViewPolicy",
    "ViewSource",
    "Views",
]
