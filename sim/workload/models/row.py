"""One row of a table of built-in model shapes."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
