"""Backbones: pretrained networks that turn pictures into features."""

from ltpll.backbones.backbone import Backbone
from ltpll.backbones.embedder import Embedder
from ltpll.backbones.preprocessing import Preprocessing

__all__ = ["Backbone", "Embedder", "Preprocessing"]
