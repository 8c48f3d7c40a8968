"""Kernels of a server in jax programs, jitted ones too: a wrapper of jax.pure_callback.

    python jax_callback.py [ADDRESS]

jax hands its arrays over on the host and goes on with what comes back; there are no gradients.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import warpcall


def kernel(
    client: warpcall.Client, name: str, **attributes: Any
) -> Callable[[jax.Array], jax.Array]:
    """Returns a kernel as a JAX function; its output has the shape and type of its one input."""

    def on_host(x: Any) -> Any:
        return np.asarray(client.run(name, np.asarray(x), **attributes))

    def function(x: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(on_host, like, x, vmap_method="sequential")

    return function


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8470"
    with warpcall.connect(address, timeout=60) as client:
        gelu, softmax = kernel(client, "gelu"), kernel(client, "softmax", axis=-1)

        def model(x: jax.Array) -> jax.Array:
            return softmax(gelu(x) * 2)

        x = jnp.linspace(-3, 3, 12).reshape(3, 4)
        y = jax.jit(model)(x).block_until_ready()
        expected = jax.nn.softmax(jax.nn.gelu(x, approximate=True) * 2)
        print("largest difference from jax's own:", float(jnp.abs(y - expected).max()))


if __name__ == "__main__":
    main()
