"""What a kernel in Triton's language says of itself to compile.py: how it is compiled and launched."""

from dataclasses import dataclass, field
from typing import Any

# Data types as problems name them, and as Triton does.
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def pointer(data_type):
    """A tensor's address, which the server aligns to 256 bytes."""
    return Argument("*" + TYPES[data_type], 16)


@dataclass(frozen=True)
class Argument:
    """A parameter of the kernel that is not a constant: its type in Triton's words (i32, i64, fp32 or a
    pointer), and what divides it (an integer's value, a pointer's address). Only 1 and 16 mean something to
    Triton."""
    type: str
    divisible_by: int = 1


@dataclass(frozen=True)
class Variant:
    """One compilation of a kernel. `grid` has up to three expressions over integer arguments and constants:
    see kernels/manifest/integer_expression.h. `requires` has conditions on problems that are taken; what divides
    arguments goes without saying. Pointers are the op's inputs and then its output, in their order."""
    name: str  # within the op and data type
    kernel: Any
    arguments: dict
    constants: dict
    grid: tuple
    requires: tuple = ()
    given: tuple = ()  # more integers for expressions, from the row
    traits: dict = field(default_factory=dict)  # what rows choose by, beside sizes: "layout": "nt"
    tile: str = ""  # what choices.txt calls it by; several variants may share one
    warps: int = 4
    stages: int = 3

    def constants_for_expressions(self):
        return {name: value for name, value in self.constants.items()
                if isinstance(value, int) and not isinstance(value, bool)}
