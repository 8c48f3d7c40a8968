"""Kernels as operators of torch, so that models call them, compiled ones too.

import torch, warpcall.torch
warpcall.torch.use("127.0.0.1:8470")
y = torch.ops.warpcall.softmax(x, axis=-1)

Each kernel that the package knows has an operator with its inputs and attributes, and with
`implementation` and `device`. Tensors must be in host memory; GPU tensors are refused. Results are
new contiguous tensors. There are no gradients: `backward` through an operator raises.

`w = warpcall.torch.put(model.weight)` puts a tensor on the server's device. From then on operators
that get `model.weight` send a handle in place of its data, until it is written to or `w` is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ._catalog import KERNELS
from ._client import Client, connect
from ._proto import AttributeInfo, KernelInfo
from ._residents import Resident
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


class _Put(NamedTuple):
    """A tensor that is on the server."""

    tensor: torch.Tensor
    """Shares memory and version with the caller's, so that no other tensor gets that memory."""
    version: int
    """Torch counts writes in place to a tensor and its views; this was the count at the put."""
    resident: Resident

    @property
    def is_current(self) -> bool:
        return self.tensor._version == self.version and not self.resident.freed


# By address, type, shape and strides. Entries that are not current go with the next put.
_puts: dict[tuple[object, ...], _Put] = {}


def put(tensor: torch.Tensor, **options: Any) -> Resident:
    """Puts a tensor on the server's device, with the options of `Client.put` but dtype. Operators
    that get this tensor, or a view of all its elements with its shape, use the one on the device.

    After a write to the tensor in place they send its data again. Torch does not count writes
    through `tensor.data` and through NumPy: free the Resident before such a write.

    Raises InvalidArgument for an inference tensor, of which torch counts no writes, and for one of
    rank 0; else as `Client.put`."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"a {type(tensor).__name__} to put; it must be a torch.Tensor")
    if "dtype" in options:
        raise InvalidArgument(
            f"dtype is {options['dtype']}, the tensor's {tensor.dtype}; operators use a tensor in"
            " its own type: put tensor.to(dtype), and pass that to them"
        )
    if tensor.dim() == 0:  # the server has no rank 0
        raise InvalidArgument("a tensor of rank 0 to put; its rank must be at least 1")
    if tensor.is_inference():
        raise InvalidArgument(
            "torch counts no writes to an inference tensor; put a clone that is made outside of"
            " torch.inference_mode()"
        )
    shared = tensor.detach()
    version = shared._version  # a write that runs beside the put counts
    made = _Put(shared, version, _called().put(shared, **options))
    for place, found in list(_puts.items()):
        if not found.is_current:
            _puts.pop(place, None)
    _puts[_place_of(shared)] = made
    return made.resident


def _place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _input_of(tensor: torch.Tensor) -> torch.Tensor | Resident:
    found = _puts.get(_place_of(tensor)) if _puts else None
    return tensor if found is None or not found.is_current else found.resident


def _called() -> Client:
    if _client is None:
        raise InvalidArgument("no server to call: say warpcall.torch.use(...) first")
    return _client


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
        given = [_input_of(tensor) for tensor in inputs if tensor is not None]
        tensor: torch.Tensor = _called().run(kernel.name, *given, **options).torch()
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
