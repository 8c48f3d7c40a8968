"""The Python client with TLS servers: the servers it trusts, and the certificate it shows."""

import os
import shutil
import socket
import subprocess
import tempfile
import unittest

from support import FakeServer, grpc, main, np
import warpcall
from ways import QUICK, WAYS, Script, X


def knows_localhost():
    try:
        return bool(socket.getaddrinfo("localhost", None))
    except socket.gaierror:  # a bare root has no /etc/hosts
        return False


@unittest.skipIf(shutil.which("openssl") is None, "openssl, which makes certificates, is missing")
@unittest.skipUnless(knows_localhost(), "this system does not know the name localhost")
class TlsTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for name in ("server", "other"):
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                 "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                 "subjectAltName=DNS:localhost", "-keyout", self.path(name, "key"), "-out",
                 self.path(name, "pem")], check=True, capture_output=True, timeout=60)

    def path(self, name, kind):
        return os.path.join(self.folder, f"{name}.{kind}")

    def pem(self, name, kind):
        with open(self.path(name, kind), "rb") as file:
            return file.read()

    def ends(self, server, tls):
        """Yields the outcome of identity: "OK" or the error's code."""
        for connect, call in (WAYS[0], WAYS[-1]):
            with connect(server.address, timeout=60, retry=QUICK, tls=tls, token="t") as client:
                try:
                    np.testing.assert_array_equal(call(client), X)
                except warpcall.Error as error:
                    yield error.code
                else:
                    yield "OK"

    def test_a_server_that_it_trusts_or_not(self):
        credentials = grpc.ssl_server_credentials([(self.pem("server", "key"),
                                                    self.pem("server", "pem"))])
        with FakeServer(Script(), address="localhost:0", credentials=credentials) as server:
            for ca, end in [(self.path("server", "pem"), "OK"), (self.pem("server", "pem"), "OK"),
                            (self.path("other", "pem"), "UNAVAILABLE")]:
                self.assertEqual(list(self.ends(server, warpcall.TLS(ca=ca))), [end] * 2)

    def test_a_server_that_asks_for_a_certificate(self):
        credentials = grpc.ssl_server_credentials(
            [(self.pem("server", "key"), self.pem("server", "pem"))],
            root_certificates=self.pem("other", "pem"), require_client_auth=True)
        ca, cert = self.path("server", "pem"), self.path("other", "pem")
        key = self.pem("other", "key")
        with FakeServer(Script(), address="localhost:0", credentials=credentials) as server:
            self.assertEqual(list(self.ends(server, warpcall.TLS(ca, cert, key))), ["OK"] * 2)
            self.assertEqual(list(self.ends(server, warpcall.TLS(ca))), ["UNAVAILABLE"] * 2)

    def test_what_is_no_certificate(self):
        with self.assertRaises(warpcall.InvalidArgument):
            warpcall.connect("localhost:1", tls=warpcall.TLS(cert=b"x"))
        with self.assertRaises(FileNotFoundError):
            warpcall.connect("localhost:1", tls=warpcall.TLS(ca=self.path("no", "pem")))


if __name__ == "__main__":
    main()
