"""How far something is: told to a callback, or shown by tqdm where that is installed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

# None or False: nobody is told. True: a bar of tqdm's, where it is installed, and nothing
# elsewhere. Or what is called with how many are done, and of how many, None where nobody knows.
Progress: TypeAlias = "bool | Callable[[int, Any], object] | None"


@contextlib.contextmanager
def counting(progress: Progress, total: int | None, what: str) -> Iterator[Callable[[], None]]:
    """Gives what is to be called whenever one more is done."""
    if callable(progress):
        done = 0

        def tell() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        yield tell
        return
    bar: Any = None
    if progress:
        # Without it the work is done all the same.
        with contextlib.suppress(ImportError):
            bar = importlib.import_module("tqdm.auto").tqdm(total=total, desc=what)
    if bar is None:
        yield lambda: None
        return
    with bar:
        yield lambda: bar.update()


def length_of(items: object) -> int | None:
    """How many there are, if they say."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None
