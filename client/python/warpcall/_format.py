"""Numbers as people read them: three digits and a unit, as the command line prints them."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]


def digits(value: float) -> str:
    """Three significant digits, or all of the integer part."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def scaled(value: float, unit: str) -> str:
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{digits(value / factor)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def bytes_per_second(value: float) -> str:
    return scaled(value, "B/s")


def flops_per_second(value: float) -> str:
    return scaled(value, "FLOP/s")


def digits_or_whole(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else digits(value)


def binary_bytes(value: float) -> str:
    for factor, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def nanoseconds(value: float) -> str:
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} ns"


def printable(text: str) -> str:
    """Text from elsewhere with its control characters escaped, except newlines and tabs."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def cut_middle(text: str, width: int) -> str:
    """At most `width` characters: of a longer text the beginning and the end."""
    if len(text) <= width:
        return text
    tail = (width - 3) // 2
    return f"{text[: width - 3 - tail]}...{text[-tail:]}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines: list[str] = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def variant_name(implementation: str, variant: str) -> str:
    """ "cuda:two_pass"; the implementation alone where no variant is known."""
    return f"{implementation}:{variant}" if variant else implementation
