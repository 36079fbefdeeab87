"""Views: random variants of a batch, drawn on its device, one independent draw per example."""

from __future__ import annotations

from ltpll.views.basic import Cutout, Jitter, Shift, ViewPolicy, Views, ViewSource

__all__ = ["Cutout", "Jitter", "Shift", "ViewPolicy", "ViewSource", "Views"]
