"""How far something is: told to a callback, or shown by tqdm where that is installed."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

# None or False: nobody is told. True: a bar of tqdm's, where it is installed, and nothing
# elsewhere. Or what is called with how many are done, and of how many, None where nobody knows.
Progress: TypeAlias = "bool | Callable[[int, Any], object] | None"


class Counter:
    """Called whenever one more is done."""

    def __init__(self, progress: Progress, total: int | None, bar: Any) -> None:
        self._progress, self._total, self._bar = progress, total, bar
        self._numbers = itertools.count(1)

    def __call__(self) -> None:
        if self._bar is not None:
            self._bar.update()
        elif callable(self._progress):
            self._progress(next(self._numbers), self._total)

    def note(self, text: str) -> None:
        """Shows `text` beside the bar, before the next step is done."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)


@contextlib.contextmanager
def counting(progress: Progress, total: int | None, what: str) -> Generator[Counter, None, None]:
    """Yields a Counter for the work, and closes its bar if there is one."""
    bar: Any = None
    if progress is True:
        # Without it the work is done all the same.
        with contextlib.suppress(ImportError):
            bar = importlib.import_module("tqdm.auto").tqdm(total=total, desc=what)
    with contextlib.nullcontext() if bar is None else bar:
        yield Counter(progress, total, bar)


def length_of(items: object) -> int | None:
    """How many there are, if they say."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None
