"""Methods: each file here is one, found by its `name`; to add one, add a file."""

from __future__ import annotations

from ltpll.interfaces import Method
from ltpll.registry import Registry

METHODS: Registry[Method] = Registry("method", Method).discover(__name__, list(__path__))
