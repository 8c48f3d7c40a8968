"""The cases of ray_test.py, for a Python that has Ray: deploy/ray on a cluster of this machine, of a head without
CPUs and three nodes.

    ray_cluster.py WARPCALLD FOLDER [unittest's arguments]
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import types
import unittest
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
MODULE = HERE.parents[1] / "deploy" / "ray"
sys.path[:0] = [str(MODULE), str(HERE.parent / "differential")]

import differential  # noqa: E402
import numpy as np  # noqa: E402
import processes  # noqa: E402
import ray  # noqa: E402
import ray.cluster_utils  # noqa: E402
import warpcall  # noqa: E402
import warpcall_ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

WARPCALLD, FOLDER = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
# Addresses of this process alone. Ray takes 127.0.0.1 for the machine's other address.
NETWORK = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
NODES = 3
NODE = {"object_store_memory": 80 << 20, "include_dashboard": False}
# A node's silence is noticed sooner than after Ray's 15 s.
HEAD = {"num_cpus": 0, "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 4}}
FLAGS = ("--devices=cpu", "--self_test=off", "--lanes_per_device=1", "--staging_mib=256", "--log_level=warning",
         "--max_message_mib=64")
# Blocks exceed the size that Ray keeps in its messages (100 KiB), so that a node takes its blocks with it.
BLOCKS, ROWS, COLUMNS = 24, 4800, 256
# Blocks that each node does before it is held.
FREE = 3
SECONDS_MAX = 240
ATTRIBUTES = {"softmax": {"axis": -1}, "gelu": {"approximate": "tanh"}}


def rows_of(batch):
    """Makes each row from its id."""
    ids = batch["id"][:, None].astype(np.float64)
    return {"id": batch["id"], "x": (8 * np.sin(37 * ids + 1.7 * np.arange(COLUMNS))).astype(np.float32)}


def here():
    return ray.get_runtime_context().get_node_id()


@ray.remote(num_cpus=0)
class Gate:
    """Holds blocks, from a node's FREE'th on, until it is opened; counts blocks by node."""

    def __init__(self):
        self.blocks = collections.Counter()
        self.opened = asyncio.Event()

    async def enter(self, node):
        self.blocks[node] += 1
        if self.blocks[node] > FREE:
            await self.opened.wait()

    async def open(self):
        self.opened.set()

    async def counts(self):
        return self.blocks


class Gated:
    """Makes rows of their ids, runs both kernels over them and goes through the gate."""

    def __init__(self, gate, servers):
        self.gate = gate
        self.kernels = [warpcall_ray.RunKernel(servers, kernel, out=kernel, **attributes)
                        for kernel, attributes in ATTRIBUTES.items()]

    def __call__(self, batch):
        batch = rows_of({"id": batch["data"]})
        for kernel in self.kernels:
            batch = kernel(batch)
        ray.get(self.gate.enter.remote(here()))
        return batch


def mapped(kind, *arguments, **options):
    """The output of `kind` over blocks of ids, by a worker a node."""
    blocks = ray.data.from_numpy(np.split(np.arange(ROWS), BLOCKS))
    return blocks.map_batches(kind, fn_constructor_args=arguments, fn_constructor_kwargs=options, batch_size=None,
                              num_cpus=0.5, compute=ray.data.ActorPoolStrategy(size=NODES))


def collected(rows):
    """All columns, by the rows' order in the dataset's output."""
    batches = list(rows.iter_batches(batch_size=None, batch_format="numpy"))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def state_and_parent(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]


def is_alive(pid):
    try:
        return state_and_parent(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid):
    return int(state_and_parent(pid)[1])


def children_of(pid):
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if parent_of(process.name) == pid:
                found.add(int(process.name))
    return found


def requests(serving, code="OK"):
    """{kernel: number of the server's answers with that code}."""
    with urllib.request.urlopen(f"http://{serving.metrics_address}/metrics", timeout=30) as response:
        text = response.read().decode()
    counts = collections.Counter()
    for labels, value in re.findall(r"(?m)^warpcall_requests_total\{(.*)\} (\d+)$", text):
        if f'code="{code}"' in labels:
            counts[re.search(r'kernel="(\w*)"', labels)[1]] += int(value)
    return +counts  # drops zero counts


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = ray.cluster_utils.Cluster(
            initialize_head=True, head_node_args={**NODE, **HEAD, "node_ip_address": f"{NETWORK}.1"})
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.addresses = (f"{NETWORK}.{i}" for i in range(2, 250))
        ray.init(cls.cluster.address, _node_ip_address=f"{NETWORK}.1", runtime_env={"working_dir": str(MODULE)})
        cls.addClassCleanup(ray.shutdown)
        ray.data.DataContext.get_current().enable_progress_bars = False

    def setUp(self):
        self.nodes = [node for node in self.cluster.worker_nodes if is_alive(self.raylet(node))]
        while len(self.nodes) < NODES:
            self.nodes.append(self.cluster.add_node(**NODE, num_cpus=2, node_ip_address=next(self.addresses)))
        self.servers = warpcall_ray.Servers(WARPCALLD, FLAGS)
        self.gate = Gate.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(here(), soft=False)).remote()
        self.addCleanup(ray.kill, self.gate)
        self.addCleanup(ray.kill, self.servers.keeper)

    def raylet(self, node):
        (info,) = node.all_processes["raylet"]
        return info.process.pid

    def collect(self, while_held):
        """The output of Gated; `while_held` is called when every node has been held at the gate, which is opened
        then."""
        def are_held():
            counts = ray.get(self.gate.counts.remote())
            return all(counts[node.node_id] > FREE for node in self.nodes)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            output = pool.submit(collected, mapped(Gated, self.gate, self.servers))
            try:
                processes.wait_until("every node to be held", lambda: output.done() or are_held(), SECONDS_MAX)
                self.assertFalse(output.done())
                while_held()
            finally:
                ray.get(self.gate.open.remote())
            return output.result(timeout=SECONDS_MAX)

    def check_output(self, output):
        """Every row is there once, and each element as NumPy has it in float64, within the bounds of differential."""
        np.testing.assert_array_equal(np.sort(output["id"]), np.arange(ROWS))
        x = rows_of(output)["x"]
        np.testing.assert_array_equal(output["x"], x)
        for kernel, attributes in ATTRIBUTES.items():
            problem = types.SimpleNamespace(kernel=kernel, attributes=attributes, shapes=[list(x.shape)],
                                            operands=lambda: [x.astype(np.float64)])
            truth = differential.Problem.truth(problem)
            bound = differential.Problem.arithmetic(problem, truth) + 2.0**-24 * np.abs(truth)
            np.testing.assert_array_less(np.abs(output[kernel] - truth) - bound, 1e-300, kernel)

    def stop(self):
        """Servers end as they should."""
        serving, statuses = self.servers.serving(), self.servers.stop()
        self.assertEqual(statuses, {node: 0 for node in serving})
        self.assertEqual([pid for _, _, pid in serving.values() if is_alive(pid)], [])

    def check_calls(self):
        """Calls went to the server of their own node, and of every node that is left."""
        serving = self.servers.serving()
        left = {node.node_id for node in self.nodes if is_alive(self.raylet(node))}
        self.assertEqual(set(serving), left)
        counts = ray.get(self.gate.counts.remote())
        for node in left:
            self.assertGreater(counts[node], FREE)
            self.assertEqual(requests(serving[node]), {kernel: counts[node] for kernel in ATTRIBUTES})
        return counts

    def test_a_node_that_is_lost_costs_no_row(self):
        lost = self.nodes[1]
        servers = {}

        def kill():
            servers.update(self.servers.serving())
            server = servers[lost.node_id].pid
            raylet = self.raylet(lost)
            workers = children_of(raylet) - {parent_of(server)}
            # Kills all but our server, which has to end by itself.
            for process in (raylet, *workers):
                os.kill(process, signal.SIGKILL)
            processes.wait_until("the lost node's server to be gone", lambda: not is_alive(server), SECONDS_MAX)
        self.check_output(self.collect(kill))
        self.assertEqual(len(servers), NODES)
        counts = self.check_calls()
        # The lost node's calls were repeated: those under way, and finished ones not yet fetched.
        self.assertGreater(sum(counts.values()), BLOCKS)
        print(f"{BLOCKS} blocks: {[counts[node.node_id] for node in self.nodes]}, of which the second was lost")
        self.stop()

    def test_a_server_that_is_killed_is_started_again(self):
        before = {}

        def kill():
            before.update(self.servers.serving())
            os.kill(before[self.nodes[0].node_id].pid, signal.SIGKILL)
        self.check_output(self.collect(kill))
        after = self.servers.serving()
        killed = self.nodes[0].node_id
        self.assertEqual({node for node in before if before[node] != after[node]}, {killed})
        self.assertEqual(before[killed].address, after[killed].address)
        self.assertGreater(requests(after[killed])["softmax"], 0)
        self.stop()

    def test_a_server_waits_for_the_one_before_it(self):
        """Which is dead, but not gone: the test has its lock."""
        run = warpcall_ray.RunKernel(self.servers, "identity")
        before = self.servers.serving()[here()]
        path = before.address.removeprefix("unix:") + ".lock"
        lock = self.enterContext(open(path, "rb"))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            locked = pool.submit(fcntl.flock, lock, fcntl.LOCK_EX)
            os.kill(parent_of(before.pid), signal.SIGKILL)
            locked.result(timeout=SECONDS_MAX)
        waiting = re.compile(rf"-> FLOCK .*:{os.stat(path).st_ino} ")
        processes.wait_until("the next to wait", lambda: waiting.search(
            pathlib.Path("/proc/locks").read_text(encoding="utf-8")), SECONDS_MAX)
        self.assertFalse(is_alive(before.pid))
        fcntl.flock(lock, fcntl.LOCK_UN)
        x = np.ones((3, 2), np.float32)
        np.testing.assert_array_equal(run({"x": x})["y"], x)
        self.stop()

    def test_what_is_refused_ends_the_work(self):
        rows = mapped(warpcall_ray.RunKernel, self.servers, "identity", "data", dtype="float32", axis=7)
        with self.assertRaisesRegex(ray.exceptions.RayTaskError, "INVALID_ARGUMENT: .*axis"):
            collected(rows)
        refused = sum((requests(each, "INVALID_ARGUMENT") for each in self.servers.serving().values()),
                      collections.Counter())
        self.assertLessEqual(1, sum(refused.values()))
        # Ray had given these to workers before it knew, two for each.
        self.assertLessEqual(sum(refused.values()), 2 * NODES)
        self.stop()

    def test_kernels_of_several_inputs_and_their_types(self):
        """The server of the driver's own node runs them."""
        x = rows_of({"id": np.arange(6)})["x"]
        gain = np.linspace(1, 2, COLUMNS, dtype=np.float32)
        scaled = warpcall_ray.RunKernel(self.servers, "rmsnorm", shared=(gain,), implementation="reference")
        plain = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(scaled({"x": x})["y"], plain * gain, rtol=1e-5)
        added = warpcall_ray.RunKernel(self.servers, "fused", ("a", "b"), "sum", expression="x0 - x1")
        np.testing.assert_array_equal(added({"a": x, "b": x[::-1]})["sum"], x - x[::-1])
        bits = warpcall_ray.RunKernel(self.servers, "identity", dtype="bfloat16")({"x": x})["y"]
        self.assertEqual(bits.dtype, np.uint16)
        np.testing.assert_allclose((bits.astype(np.uint32) << 16).view(np.float32), x, rtol=2.0**-8)
        self.stop()

    def test_batches_that_do_not_fit_are_refused(self):
        ones = np.ones((5, 3), np.float32)
        run = warpcall_ray.RunKernel(self.servers, "matmul", shared=(ones,), transpose_a=True)
        for batch, words in (({"z": ones}, "no column x; there is z"),
                             ({"x": np.array([[1], [1, 2]], object)}, "rows of column x differ in shape"),
                             ({"x": ones[:, :2]}, r"matmul makes \[2, 3\] of 5 rows")):
            with self.assertRaisesRegex(warpcall.InvalidArgument, words):
                run(batch)
        self.stop()

    def test_a_server_that_can_not_start_says_why(self):
        for start, words in ((("warpcalld-of-nobody",), "has no program warpcalld-of-nobody"),
                             ((WARPCALLD, ["--queue_limit=0"]), "ended with 2: .*queue_limit")):
            servers = warpcall_ray.Servers(*start)
            with self.assertRaisesRegex(ray.exceptions.RayActorError, words):
                warpcall_ray.RunKernel(servers, "identity")
            self.assertEqual(servers.stop(), {})

    def test_a_server_that_can_not_start_again_says_why(self):
        program = pathlib.Path(FOLDER, "warpcalld")
        program.symlink_to(WARPCALLD)
        servers = warpcall_ray.Servers(str(program), FLAGS)
        run = warpcall_ray.RunKernel(servers, "identity", timeout=1)
        program.unlink()
        os.kill(servers.serving()[here()].pid, signal.SIGKILL)
        with self.assertRaisesRegex(ray.exceptions.RayActorError, f"has no program {program}"):
            run({"x": np.ones(3, np.float32)})
        self.assertEqual(servers.stop(), {})

    def test_what_the_documents_show(self):
        """Runs as a program of its own, on a few rows."""
        text = (MODULE.parent / "README.md").read_text(encoding="utf-8")
        program = re.search(r"(?s)```python\n(import ray\n.*?)```", text)[1]
        for old, new in ((r'"deploy/ray"', repr(str(MODULE))), ("/data", f"{FOLDER}/data"),
                         ("ray.init(", f"ray.init({self.cluster.address!r}, _node_ip_address='{NETWORK}.1', ")):
            self.assertIn(old, program)
            program = program.replace(old, new)
        x = rows_of({"id": np.arange(40)})["x"]
        ray.data.from_numpy(np.split(x, 4)).rename_columns({"data": "x"}).write_parquet(f"{FOLDER}/data/x")
        self.driver(program).wait(timeout=SECONDS_MAX)
        done = collected(ray.data.read_parquet(f"{FOLDER}/data/y"))
        np.testing.assert_array_equal(np.sort(done["x"], axis=0), np.sort(x, axis=0))
        truth = differential.softmax(done["x"].astype(np.float64), -1)
        np.testing.assert_allclose(done["y"], truth, rtol=1e-5)

    def driver(self, program):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": f"{MODULE}:{os.environ['PYTHONPATH']}"})
        self.addCleanup(process.__exit__, None, None, None)
        self.addCleanup(process.kill)
        return process

    def test_a_driver_that_is_killed_leaves_no_server(self):
        driver = self.driver(
            f"import ray, signal, warpcall_ray; ray.init({self.cluster.address!r}, _node_ip_address='{NETWORK}.1',"
            f" runtime_env={{'working_dir': {str(MODULE)!r}}}, log_to_driver=False);"
            f" servers = warpcall_ray.Servers({WARPCALLD!r}, {FLAGS!r});"
            " print(ray.get(servers.here().serving.remote()).pid, flush=True); signal.pause()")
        pid = int(driver.stdout.readline())
        self.assertTrue(is_alive(pid))
        driver.kill()
        processes.wait_until("the server to be gone", lambda: not is_alive(pid), SECONDS_MAX)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
