"""Kernels as operators of torch, so that models call them, compiled ones too.

import torch, warpcall.torch
warpcall.torch.use("127.0.0.1:8470")
y = torch.ops.warpcall.softmax(x, axis=-1)

Each kernel that the package knows has an operator with its inputs and attributes, and with
`implementation` and `device`. Tensors must be in host memory; GPU tensors are refused. Results are
new contiguous tensors. There are no gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._catalog import KERNELS
from ._client import Client, connect
from ._proto import AttributeInfo, KernelInfo
from .errors import InvalidArgument

_client: Client | None = None


def use(server: Client | str, **options: Any) -> Client:
    """Sets the client of the operators' calls: a client, or an address and arguments of `connect`.
    The caller closes the client."""
    global _client
    if isinstance(server, str):
        server = connect(server, **options)
    elif options:
        raise InvalidArgument("options are for an address; a client has its own")
    _client = server
    return server


def _schema(kernel: KernelInfo) -> str:
    """In torch's language."""
    least = kernel.inputs_min or len(kernel.input_names)
    inputs = [f"Tensor {name}" for name in kernel.input_names[:least]]
    inputs += [f"Tensor? {name}=None" for name in kernel.input_names[least:]]
    options = [*map(_option, kernel.attributes), 'str implementation=""', 'str device=""']
    return f"({', '.join([*inputs, '*', *options])}) -> Tensor"


def _option(attribute: AttributeInfo) -> str:
    default = attribute.default_value
    text = f'"{default}"' if isinstance(default, str) else str(default)
    name = attribute.name if attribute.required else f"{attribute.name}={text}"
    return f"{type(default).__name__} {name}"


def _operator(kernel: KernelInfo) -> Callable[..., torch.Tensor]:
    def run(*inputs: torch.Tensor | None, **options: Any) -> torch.Tensor:
        if _client is None:
            raise InvalidArgument("no server to call: say warpcall.torch.use(...) first")
        given = [tensor for tensor in inputs if tensor is not None]
        tensor: torch.Tensor = _client.run(kernel.name, *given, **options).torch()
        return tensor

    return run


def _matmul_shape(a: torch.Tensor, b: torch.Tensor, options: dict[str, Any]) -> list[Any]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-1 if options.get("transpose_a") else -2]
    return [*batch, rows, b.shape[-2 if options.get("transpose_b") else -1]]


def _linear_shape(x: torch.Tensor, weight: torch.Tensor, *_: Any) -> list[Any]:
    return [*x.shape[:-1], weight.shape[0]]


def _broadcast_shape(*inputs_and_options: Any) -> list[Any]:
    *inputs, _ = inputs_and_options
    return [*torch.broadcast_shapes(*(x.shape for x in inputs if x is not None))]


# Kernels whose result differs in shape from their first input.
_SHAPES: dict[str, Callable[..., list[Any]]] = {
    "fused": _broadcast_shape,
    "linear": _linear_shape,
    "matmul": _matmul_shape,
}


def _fake(kernel: KernelInfo) -> Callable[..., torch.Tensor]:
    """Returns a function that makes an empty result of the right shape, for tracing."""

    def fake(*inputs: torch.Tensor, **options: Any) -> torch.Tensor:
        shape = _SHAPES.get(kernel.name)
        return inputs[0].new_empty(shape(*inputs, options) if shape else inputs[0].shape)

    return fake


for _kernel in KERNELS:
    _op = torch.library.custom_op(
        f"warpcall::{_kernel.name}",
        _operator(_kernel),
        mutates_args=(),
        schema=_schema(_kernel),
    )
    _op.register_fake(_fake(_kernel))
