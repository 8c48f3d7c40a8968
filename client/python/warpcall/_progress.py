"""How far something is: told to a callback, or shown by tqdm where that is installed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

# None or False: nobody is told. True: a bar of tqdm's, where it is installed, and nothing
# elsewhere. Or what is called with how many are done, and of how many, None where nobody knows.
Progress: TypeAlias = "bool | Callable[[int, Any], object] | None"


@contextlib.contextmanager
def counting(progress: Progress, total: int | None, what: str) -> Iterator[Callable[[], None]]:
    """Gives what is to be called whenever one more is done."""
    bar: Any = None
    if progress is True:
        # Without it the work is done all the same.
        with contextlib.suppress(ImportError):
            bar = importlib.import_module("tqdm.auto").tqdm(total=total, desc=what)
    numbers = itertools.count(1)

    def advance() -> None:
        if bar is not None:
            bar.update()
        elif callable(progress):
            progress(next(numbers), total)

    with contextlib.nullcontext() if bar is None else bar:
        yield advance


def length_of(items: object) -> int | None:
    """How many there are, if they say."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None
