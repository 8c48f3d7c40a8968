"""Ctrl-C at drawn moments of calls of every kind: the client's next call returns."""

import subprocess
import sys
import textwrap
import unittest

from support import ENVIRONMENT, SEED, SECONDS_MAX, RealServer, main

INTERRUPTS = 8
PROGRAM = textwrap.dedent("""
    import _thread, faulthandler, os, random, signal, sys, time
    import numpy as np, warpcall
    address, seed, count, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    faulthandler.dump_traceback_later(seconds, exit=True)
    draw = random.Random(seed)
    small, large = np.ones((4, 1024), "f4"), np.ones((4, 1 << 20), "f4")
    gpu = warpcall.connect(address)

    def graph():
        with gpu.graph() as g:
            g.output(g.gelu(g.input("x")))
        return g.build()(x=large)

    CALLS = {"small": lambda: gpu.gelu(small), "stream": lambda: gpu.gelu(np.vstack([large, large])),
             "graph": graph, "put": lambda: gpu.put(large).free(), "list": gpu.devices,
             "rows": lambda: gpu.benchmark("gelu", ["64x64"], iterations=50),
             "submit": lambda: gpu.submit("gelu", small).result()}

    def interrupt(call, delay):
        def press():
            time.sleep(delay)
            os.kill(os.getpid(), signal.SIGINT)

        try:
            _thread.start_new_thread(press, ())
            end = time.monotonic() + 10
            while time.monotonic() < end:  # an interrupt that strikes a destructor is ignored
                call()
        except KeyboardInterrupt:
            pass

    for name, call in CALLS.items():
        call()
        for _ in range(count):
            interrupt(call, draw.uniform(0, 0.03))
            gpu.devices(timeout=20)
            gpu.gelu(small, timeout=20)
        print(name, flush=True)
    gpu.close()
    print("closed", flush=True)
""")


class InterruptTest(unittest.TestCase):
    def test_the_next_call_returns(self):
        with RealServer() as server:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, server.address, str(SEED), str(INTERRUPTS), str(2 * SECONDS_MAX)],
                text=True, capture_output=True, env=ENVIRONMENT, check=False)
        self.assertEqual((done.returncode, done.stdout.split()[-1:]), (0, ["closed"]), done.stdout + done.stderr)


if __name__ == "__main__":
    main()
