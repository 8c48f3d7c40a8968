# jax.numpy for type checkers where it is not installed: anything.
from typing import Any

def __getattr__(name: str) -> Any: ...
