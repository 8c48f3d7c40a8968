"""Bars as SVG, without a library for it."""

from __future__ import annotations

import html
from collections.abc import Sequence

_WIDTH, _BAR, _GAP, _TOP, _MARGIN = 760, 18, 6, 34, 12
# Approximate width of a digit in the font below.
_CHARACTER = 6.7
_VALUE_WIDTH = 70
_STYLE = "font:12px system-ui,sans-serif"


class Svg(str):
    """The text of a picture; notebooks show it."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def saved(self, path: str | None) -> Svg:
        """Itself, written to `path` if that is given."""
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self)
        return self


def bars(title: str, labels: Sequence[str], values: Sequence[float], texts: Sequence[str]) -> Svg:
    """A horizontal bar for each value, which is 0 or more, with its text at the end."""
    left = _MARGIN + min(320.0, max((len(label) for label in labels), default=0) * _CHARACTER + 8)
    scale = (_WIDTH - left - _VALUE_WIDTH - _MARGIN) / (max(values, default=0.0) or 1.0)
    height = _TOP + len(labels) * (_BAR + _GAP) + _MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" style="{_STYLE}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="20" font-weight="600">{html.escape(title)}</text>',
    ]
    for i, (label, value, text) in enumerate(zip(labels, values, texts, strict=True)):
        y = _TOP + i * (_BAR + _GAP)
        middle, end = y + _BAR - 5, left + value * scale
        out.append(
            f'<text x="{left - 8:.1f}" y="{middle}" text-anchor="end">{html.escape(label)}</text>'
            f'<rect x="{left:.1f}" y="{y}" width="{value * scale:.1f}" height="{_BAR}"'
            ' rx="2" fill="#2b6cb0"/>'
            f'<text x="{end + 6:.1f}" y="{middle}">{html.escape(text)}</text>'
        )
    return Svg("\n".join([*out, "</svg>", ""]))
