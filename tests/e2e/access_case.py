"""Shared parts of the tests of access: a folder of files, a server, and outcomes of calls."""

import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
sys.path[:0] = [str(SOURCE / "client" / "python"), str(SOURCE / "tests" / "differential")]
try:
    import numpy as np

    import differential
    import warpcall
    from differential import eventually  # noqa: F401  for the tests
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

SECONDS_MAX = 90
PROGRAMS = pathlib.Path(os.environ.get("WARPCALL_TEST_BIN_DIR", BUILD / "bin"))
ALICE, BOB, NEWER = "alice-0123456789abcdef", "bob-0123456789abcdef", "alice-fedcba9876543210"
X = np.arange(8, dtype=np.float32)


def run_openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


class AccessCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def path(self, name):
        return str(self.folder / name)

    def write(self, name, text):
        """Writes as editors and renewals do: in one step."""
        (self.folder / "new").write_text(text)
        os.replace(self.folder / "new", self.folder / name)
        return self.path(name)

    def make_certificate(self, name, days=2):
        """Signed by itself: name.pem and name.key."""
        run_openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", str(days), "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.path(f"{name}.key"),
                    "-out", self.path(f"{name}.pem"))

    def make_signed(self, name, authority, days=2):
        """Signed by the authority, for a client."""
        run_openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"), "-out",
                    self.path(f"{name}.csr"))
        run_openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA",
                    self.path(f"{authority}.pem"), "-CAkey", self.path(f"{authority}.key"),
                    "-CAcreateserial", "-days", str(days), "-out", self.path(f"{name}.pem"))

    def tls_flags(self, name="server"):
        return [f"--tls_cert={self.path(name + '.pem')}", f"--tls_key={self.path(name + '.key')}"]

    def serve(self, *flags):
        return self.enterContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off", *flags))

    def command(self, server, *arguments):
        """(exit status, stdout, stderr) of warpcall."""
        result = subprocess.run([PROGRAMS / "warpcall", "--server", server.address, *arguments],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                timeout=SECONDS_MAX)
        return result.returncode, result.stdout, result.stderr

    def assert_done(self, server, *arguments):
        status, _, errors = self.command(server, *arguments)  # errors: progress, where that takes long
        self.assertEqual(status, 0, (arguments, errors))

    def assert_refused(self, server, text, *arguments):
        status, output, errors = self.command(server, *arguments)
        self.assertEqual((status, output), (1, ""), arguments)
        self.assertIn(text, errors, arguments)

    def ends(self, server, **connection):
        """Outcome of identity by the Python client: "OK" or the error's code."""
        with warpcall.connect(server.address, timeout=SECONDS_MAX, **connection,
                              retry=warpcall.Retry(attempts_max=1)) as client:
            try:
                np.testing.assert_array_equal(client.identity(X), X)
            except warpcall.Error as error:
                return error.code
        return "OK"

    def shown(self, server):
        """The certificate that the server shows to a connection that begins now."""
        host, port = server.address.rsplit(":", 1)
        return ssl.get_server_certificate((host, int(port)), timeout=SECONDS_MAX)

    def assert_does_not_start(self, text, *flags):
        result = subprocess.run([PROGRAMS / "warpcalld", "--listen=127.0.0.1:0", "--devices=cpu",
                                 "--metrics_listen=127.0.0.1:0", *flags], capture_output=True, text=True,
                                check=False, timeout=SECONDS_MAX)
        self.assertNotEqual(result.returncode, 0, flags)
        self.assertIn(text, result.stderr, flags)
