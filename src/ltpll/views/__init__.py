"""Views: random variants of a batch, drawn on its device, one independent draw per example."""

from __future__ import annotations

from ltpll.views.basic import Cutout, Jitter, Shift, ViewPolicy, Views, ViewSource
from ltpll.views.images import VIEW_POLICIES, ImageViews

__all__ = ["VIEW_POLICIES", "Cutout", "ImageViews", "Jitter", "Shift", "ViewPolicy", "ViewSource", "Views"]
