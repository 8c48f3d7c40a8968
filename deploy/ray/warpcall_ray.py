"""Batch work on a Ray cluster: a server on each node, and Ray Data's blocks through it.

    with warpcall_ray.Servers() as servers:
        rows.map_batches(
            warpcall_ray.RunKernel,
            fn_constructor_args=(servers, "softmax"),
            fn_constructor_kwargs={"columns": "x", "out": "y", "axis": -1},
            num_cpus=0.5,
            compute=ray.data.ActorPoolStrategy(size=8),
        ).write_parquet("/data/y")

A block goes by the Python client, over a Unix socket, to the server of the node that Ray put its
worker on. Where blocks run, and that those of a lost node run again, is Ray's doing alone. Nodes
need `ray[data]`, `warpcall` and the program `warpcalld`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import ray
import warpcall
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_CALL_SECONDS = 120.0  # of a call whose options have no timeout, retries included
# Ray starts a server again within some seconds; pauses between attempts grow to 2 s.
_RETRY = warpcall.Retry(attempts_max=50)
_STOP_SECONDS = 60.0  # longer than a server drains by default (30 s)
# Nobody balances calls to it; several nodes may be on one machine. The environment and flags win.
_DEFAULTS = {"WARPCALLD_METRICS_LISTEN": "127.0.0.1:0", "WARPCALLD_LAME_DUCK_SECONDS": "0"}
# A program that ends with the thread that started it, and does not begin when that is gone already.
_WITH_PARENT = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG, parent, command = 1, int(sys.argv[1]), sys.argv[2:]
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0 and os.getppid() == parent:
    os.execv(command[0], command)
"""


def _end_with(raylet: int) -> None:
    """Ends this process with its node's raylet, which an idle worker of Ray 2.60 outlives."""
    while os.getppid() == raylet:
        time.sleep(1)
    os._exit(1)


class Serving(NamedTuple):
    """A server, as its own machine sees it. `address` is for `warpcall.connect`."""

    address: str
    metrics_address: str
    pid: int


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class NodeServer:
    """A warpcalld, as a child process that lives no longer than this actor.

    When it ends by itself the actor does, too, and Ray starts both again, with the same address.
    One that does not come to serve leaves a dead actor, whose error has its last words."""

    def __init__(self, program: str, flags: Sequence[str], name: str) -> None:
        """`name`: of the folder for its socket, which nobody else may enter."""
        path = shutil.which(program)
        if path is None:
            raise FileNotFoundError(f"{os.uname().nodename} has no program {program}")
        self._folder = pathlib.Path(tempfile.gettempdir(), name)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # One that was killed with its actor is gone when a GPU has its memory back.
        with open(self._folder / "warpcalld.sock.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        self._is_stopping = False
        self._serving: Future[Serving] = Future()
        self._thread = threading.Thread(target=self._run, args=([path, *flags],), daemon=True)
        self._thread.start()
        self._serving.result()

    def serving(self) -> Serving:
        return self._serving.result()

    def stop(self) -> int:
        """Has it drain, by SIGTERM, and returns its exit status."""
        self._is_stopping = True
        self._process.terminate()
        self._thread.join()
        shutil.rmtree(self._folder)
        return self._process.returncode

    def _run(self, command: list[str]) -> None:
        """In one thread from its start to its end, since it ends with the thread."""
        address = f"unix:{self._folder}/warpcalld.sock"
        parent = [sys.executable, "-I", "-S", "-c", _WITH_PARENT, str(os.getpid())]
        environment = _DEFAULTS | os.environ
        environment.pop("OMP_NUM_THREADS", None)  # Ray's word to workers, mostly 1
        try:
            self._process = subprocess.Popen(
                [*parent, *command, f"--listen={address}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                errors="replace",
                env=environment,
            )
        except OSError as error:  # for want of memory or processes: the actor is not to wait for it
            self._serving.set_exception(error)
            return
        said: list[str] = []
        for line in self._process.stdout or ():
            said = [*said[-2:], line.strip()]
            print(line, end="", file=sys.stderr, flush=True)  # Ray shows it to the driver
            if found := re.search(r"serving on .*, metrics on ([^\s\"]+)", line):
                self._serving.set_result(Serving(address, found[1], self._process.pid))
        end = f"warpcalld ended with {self._process.wait()}: {' / '.join(said)}"
        if not self._serving.done():
            self._serving.set_exception(RuntimeError(end))
        elif not self._is_stopping:
            print(f"{end}; Ray starts it again", file=sys.stderr, flush=True)
            os._exit(1)


@ray.remote(num_cpus=0)
class Keeper:
    """Which node has which server. It owns them and the driver owns it: Ray ends all with that."""

    def __init__(self, program: str, flags: Sequence[str], resources: Mapping[str, float]) -> None:
        self._start, self._resources = (program, tuple(flags)), resources
        self._servers: dict[str, Any] = {}

    def on(self, node_id: str) -> Any:
        """The actor of that node's server, which is started when it is asked for first."""
        if node_id not in self._servers:
            (node,) = (node for node in ray.nodes() if node["NodeID"] == node_id)
            self._servers[node_id] = NodeServer.options(
                **{"num_gpus": node["Resources"].get("GPU", 0), **self._resources},
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            ).remote(*self._start, f"warpcall-ray-{secrets.token_hex(8)}")
        return self._servers[node_id]

    def all(self) -> dict[str, Any]:
        """Those that were asked for, by node."""
        return self._servers


class Servers(contextlib.AbstractContextManager["Servers"]):
    """A server on each node, from the first batch there until `stop`, the end of a `with` or the
    driver's end. Goes to workers as an argument."""

    def __init__(
        self, program: str = "warpcalld", flags: Sequence[str] = (), **resources: float
    ) -> None:
        """Needs `ray.init` before it.

        `program`: a name or path that every node has. `flags`: the server's, but for --listen.
        `resources`: what Ray is told that a server takes, `num_cpus=4` or `num_gpus=1`; by default
        no CPU, and all GPUs of its node, for which it waits while others have them."""
        here = ray.get_runtime_context().get_node_id()
        self.keeper = Keeper.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False)
        ).remote(program, flags, resources)

    def here(self) -> Any:
        """The actor of the server on the caller's node."""
        return ray.get(self.keeper.on.remote(ray.get_runtime_context().get_node_id()))

    def serving(self) -> dict[str, Serving]:
        """The servers that there are, by their nodes' ids."""
        servers = ray.get(self.keeper.all.remote())
        return _answers({node: server.serving.remote() for node, server in servers.items()})

    def stop(self) -> dict[str, int]:
        """Has all servers drain, and returns when they are gone: their exit statuses by their
        nodes' ids, 0 when all work was done, 3 when some was cut off."""
        servers = ray.get(self.keeper.all.remote())
        statuses = _answers({node: server.stop.remote() for node, server in servers.items()})
        for actor in (*servers.values(), self.keeper):
            ray.kill(actor)
        return statuses

    def __exit__(self, *_: object) -> None:
        self.stop()


def _answers(calls: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answers of the actors that still exist; the others did not start or lost their node."""
    gone, answers = (exceptions.RayActorError, exceptions.ActorUnschedulableError), {}
    for node, call in calls.items():
        with contextlib.suppress(*gone):
            answers[node] = ray.get(call, timeout=_STOP_SECONDS)
    return answers


class RunKernel:
    """For `map_batches`: a kernel over columns of a batch, whose result is a column more. Rows must
    not depend on each other, as Ray chooses how many are in a batch.

    Raises warpcall's errors, with which Ray ends the work: what is refused once always is.
    """

    def __init__(
        self,
        servers: Servers,
        kernel: str,
        columns: str | Sequence[str] = "x",
        out: str = "y",
        shared: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        """`columns`: the kernel's inputs, in its order; rows are their first dimension. `out`: the
        result's name; of bfloat16 it has the bits, as uint16. `shared`: inputs that follow and are
        the same for all rows, as weights are. `options`: `Client.run`'s, and attributes."""
        self._kernel, self._out, self._shared = kernel, out, tuple(shared)
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns)
        self._options = options
        self._server = servers.here()
        address = ray.get(self._server.serving.remote()).address
        self._client = warpcall.connect(address, timeout=_CALL_SECONDS, retry=_RETRY)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = [_column(batch, name) for name in self._columns]
        try:
            result = self._client.run(self._kernel, *inputs, *self._shared, **self._options)
        except warpcall.Unavailable:
            ray.get(self._server.serving.remote())  # says why, if it could not be started again
            raise
        y, rows = np.asarray(result), len(inputs[0])
        if y.shape[:1] != (rows,):
            shapes = f"{list(y.shape)} of {rows} rows"
            raise warpcall.InvalidArgument(f"{self._kernel} makes {shapes}; each must have one")
        return {**batch, self._out: y.view(np.uint16) if result.dtype_name == "bfloat16" else y}


def _column(batch: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in batch:
        raise warpcall.InvalidArgument(f"there is no column {name}; there is {', '.join(batch)}")
    if batch[name].dtype == object:
        raise warpcall.InvalidArgument(f"rows of column {name} differ in shape; all must have one")
    return batch[name]
