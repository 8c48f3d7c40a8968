"""http_proxy: neither client takes a proxy for a server on this machine, nor does warpcalld for its collector;
where one is taken and fails, the error names it. With an HTTP proxy on loopback that counts its connections.

    proxy_test.py BUILD_FOLDER
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from support import BUILD, ENVIRONMENT, SECONDS_MAX, RealServer, eventually, main

CLIENT = os.path.join(BUILD, "bin", "warpcall")
PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")
# A call of each kind, by one connection and by two, and from asyncio.
PROGRAM = """
import asyncio, sys, numpy, warpcall
async def ask(address):
    async with warpcall.aio.connect(address, timeout=float(sys.argv[2]), retry=once) as gpu:
        await gpu.gelu(1.0)
once = warpcall.Retry(attempts_max=1)
try:
    for connections in (1, 2):
        with warpcall.connect(sys.argv[1], timeout=float(sys.argv[2]), connections=connections, retry=once) as gpu:
            gpu.gelu(numpy.ones(3, "f4"))
            gpu.submit("gelu", 1.0).result()
            gpu.devices()
    asyncio.run(ask(sys.argv[1]))
except warpcall.Error as error:
    print(error.message)
    sys.exit(1)
"""


class Proxy:
    """Answers CONNECT with a tunnel to `target`, or with `reply` and its end; None: never. Counts connections, and
    keeps the requested targets."""

    def __init__(self, target=None, reply=None):
        self._target, self._reply, self.asked, self.connections = target, reply, [], 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self._sockets.append(client)
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError):
            request = client.recv(1 << 16)
            self.asked.append(request.partition(b"\r\n")[0].decode(errors="replace"))
            if self._target is None:
                if self._reply is not None:
                    client.sendall(self._reply)
                    client.close()
                return
            host, _, port = self._target.rpartition(":")
            server = socket.create_connection((host, int(port)))
            self._sockets.append(server)
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
            self._pass(client, server)

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)


def environment(**variables):
    kept = {name: value for name, value in ENVIRONMENT.items() if name not in PROXY_VARIABLES}
    return {**kept, **variables}


class ProxyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.unix = f"unix:{folder}/socket"
        cls.server = cls.enterClassContext(RealServer())
        cls.other = cls.enterClassContext(RealServer(f"--listen={cls.unix}"))

    def run_with(self, command, variables):
        return subprocess.run(command, env=environment(**variables), text=True, capture_output=True,
                              timeout=2 * SECONDS_MAX, check=False)

    def by_python(self, address, variables, seconds=SECONDS_MAX):
        return self.run_with([sys.executable, "-c", PROGRAM, address, str(seconds)], variables)

    def by_command_line(self, address, variables, seconds=SECONDS_MAX):
        return self.run_with([CLIENT, "--server", address, "run", "gelu", "--shape", "4", "--deadline",
                              str(seconds)], variables)

    @property
    def ways(self):
        return [self.by_python, self.by_command_line]

    # ---- this machine ----

    def test_a_server_on_this_machine_is_reached_without_a_proxy(self):
        port = self.server.address.rpartition(":")[2]
        addresses = [self.server.address, f"localhost:{port}", f"ipv4:127.0.0.1:{port}",
                     f"dns:///localhost:{port}", self.unix]
        with Proxy(reply=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as proxy:
            for name in ("http_proxy", "https_proxy", "grpc_proxy"):
                for address in addresses if name == "http_proxy" else addresses[:1]:
                    for way in self.ways:
                        done = way(address, {name: f"http://{proxy.address}"})
                        self.assertEqual(done.returncode, 0, f"{address}: {done.stdout}{done.stderr}")
            self.assertEqual((proxy.connections, proxy.asked), (0, []))

    # ---- others ----

    def test_another_server_is_reached_through_it(self):
        with Proxy(target=self.server.address) as proxy:
            for way in self.ways:
                proxy.asked.clear()
                done = way("gpu.example:8470", {"http_proxy": f"http://me:secret@{proxy.address}"})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(set(proxy.asked), {"CONNECT gpu.example:8470 HTTP/1.1"})

    def failure(self, way, proxy, seconds=SECONDS_MAX):
        done = way("gpu.example:8470", {"https_proxy": f"http://me:secret@{proxy}"}, seconds)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        said = " ".join((done.stdout + done.stderr).split())
        self.assertIn(f"can't connect to gpu.example:8470 through the proxy {proxy} (https_proxy): ", said)
        self.assertNotIn("secret", said)
        return said

    def test_one_that_fails_is_named(self):
        with socket.socket() as nobody, Proxy(reply=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as refusing, \
                Proxy(reply=b"") as closing, Proxy() as silent:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            gone = f"127.0.0.1:{nobody.getsockname()[1]}"
            for way in self.ways:
                self.assertIn("Connection refused", self.failure(way, gone))
                self.assertIn("502", self.failure(way, refusing.address))
                self.failure(way, closing.address)
                self.assertIn("Deadline Exceeded", self.failure(way, silent.address, 2))

    # ---- the server's collector ----

    def warns(self, endpoint, proxy):
        """Returns the server's log line about a collector that nobody has reached."""
        with unittest.mock.patch.dict(os.environ, {"http_proxy": f"http://{proxy.address}"}):
            server = self.enterContext(RealServer(f"--otlp_endpoint={endpoint}",
                                                  "--otlp_sample_ratio=1"))
        done = self.by_command_line(server.address, {})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(eventually(lambda: "the collector takes no spans" in server.log_text()))
        return re.search(r".*the collector takes no spans.*", server.log_text())[0]

    def test_nor_does_the_server_take_one_for_its_collector(self):
        with socket.socket() as nobody, Proxy(reply=b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as proxy:
            nobody.bind(("127.0.0.1", 0))
            self.assertIn("proxy=none", self.warns(f"127.0.0.1:{nobody.getsockname()[1]}", proxy))
            self.assertEqual(proxy.connections, 0)
            self.assertIn(f'proxy="{proxy.address} (http_proxy)"', self.warns("collector.example:4317", proxy))
            self.assertGreater(proxy.connections, 0)


if __name__ == "__main__":
    main()
