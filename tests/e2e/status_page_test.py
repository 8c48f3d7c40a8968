#!/usr/bin/env python3
"""The page of the metrics port, and /status.json, of real servers that served a few requests.

    status_page_test.py SOURCE BUILD

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import html.parser
import http.client
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import unittest

sys.dont_write_bytecode = True
from access_case import ALICE, BOB, SECONDS_MAX, SOURCE, AccessCase, X, eventually  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = {"meta"}
ELEMENTS = {"html", "head", "meta", "noscript", "title", "style", "body", "main", "h1", "h2", "p", "span", "div", "table",
            "tr", "th", "td", "a", "script"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "name", "content", "class", "id", "href"}
LINKS = {"metrics", "healthz", "readyz", "status.json"}
EVIL = '</td><script>document.title="ran"</script>&amp;'


class Page(html.parser.HTMLParser):
    """Rows of all tables as lists of text, and what should not be there."""

    def __init__(self, text):
        super().__init__()
        self.findings, self.open, self.rows, self.links = [], [], [], set()
        self.feed(text)
        self.close()
        self.findings += [f"open: {tag}" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        if tag not in ELEMENTS or any(name not in ATTRIBUTES for name, _ in attributes):
            self.findings.append(f"<{tag} {attributes}>")
        self.links |= {value for name, value in attributes if name == "href"}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.findings.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def row(self, name):
        return next((row for row in self.rows if row[0] == name), None)


class StatusPageTest(AccessCase):
    def get(self, server, path, method="GET"):
        connection = http.client.HTTPConnection(server.metrics_address, timeout=SECONDS_MAX)
        connection.request(method, path)
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        self.assertEqual(reply.status, 200, path)
        return reply.headers, body

    def status(self, server):
        return json.loads(self.get(server, "/status.json")[1])

    def kernel(self, server, name):
        return next((kernel for kernel in self.status(server)["kernels"] if kernel["name"] == name), None)

    def page(self, server):
        page = Page(self.get(server, "/")[1])
        self.assertEqual(page.findings, [])
        self.assertEqual(page.links, LINKS)
        return page

    def send(self, gpu):
        """5 by auto, 2 by name, 1 refused; and one for a kernel that does not exist."""
        for implementation in ["auto"] * 5 + ["reference"] * 2:
            np.testing.assert_array_equal(gpu.identity(X, implementation=implementation), X)
        with self.assertRaises(warpcall.Error):
            gpu.run("identity", X, implementation="none_such")
        with self.assertRaises(warpcall.NotFound):
            gpu.run("no_such_kernel", X)

    def test_numbers_agree_with_the_requests_sent_and_with_metrics(self):
        server = self.serve()
        with warpcall.connect(server.address, timeout=SECONDS_MAX) as gpu:
            self.send(gpu)
            held = gpu.put(X)  # counts as no request
            # A request is counted after its answer.
            self.assertTrue(eventually(lambda: self.status(server)["last_minute"]["requests"] == 9))
            kernel = self.kernel(server, "identity")
            status = self.status(server)
            metrics, page = server.metrics(), self.page(server)
            held.free()
        recent = kernel["last_minute"]
        self.assertEqual((kernel["requests"], recent["requests"], recent["failed"]), (8, 8, 1))
        self.assertEqual((kernel["auto_requests"], kernel["auto_implementation_requests"]), (5, 5))
        self.assertEqual(self.kernel(server, "")["last_minute"]["failed"], 1)
        self.assertEqual(status["last_minute"]["failed"], 2)
        rate = status["last_minute"]["requests_per_second"]
        self.assertAlmostEqual(rate * status["window_seconds"], 9)
        self.assertLessEqual(status["window_seconds"], status["uptime_seconds"])
        self.assertTrue(0 < recent["p50_seconds"] <= recent["p99_seconds"], recent)
        self.assertTrue(0 < recent["queue_p50_seconds"] <= recent["queue_p99_seconds"], recent)
        counted = {name: sum(value for series, value in metrics.items() if series.startswith(name + "{")
                             and ('kernel="identity"' in series or "kernel=" not in series))
                   for name in ("warpcall_requests_total", "warpcall_request_duration_seconds_count",
                                "warpcall_auto_choices_total", "warpcall_resident_tensors")}
        self.assertEqual(counted, {"warpcall_requests_total": 8, "warpcall_request_duration_seconds_count": 8,
                                   "warpcall_auto_choices_total": 5, "warpcall_resident_tensors": 1})
        device, = status["devices"]
        self.assertEqual((device["name"], device["healthy"], device["resident_tensors"], device["queue_depth"]),
                         ("cpu", True, 1, 0))
        self.assertEqual(device["resident_used_bytes"], metrics['warpcall_resident_bytes{device="cpu",state="used"}'])
        self.assertEqual(device["memory_total_bytes"],
                         metrics['warpcall_device_memory_bytes{device="cpu",state="total"}'])
        self.assertEqual(page.row("identity")[1], kernel["auto_implementation"] + ", 5 of 5")
        self.assertEqual(page.row("identity")[-1], "8")
        self.assertEqual(page.row("all")[-1], "9")
        self.assertEqual(page.row("no kernel that exists")[-1], "1")
        self.assertTrue(page.row("cpu")[3].startswith("1: "), page.row("cpu"))
        self.assertEqual(page.row("softmax")[2:], ["0", "0", "-", "-", "-", "-", "0"])
        self.assertRegex(page.row("softmax")[1], r"^\w+, first in order$")

    def test_inspections_are_shown_with_their_caller_and_without_secrets(self):
        tokens = self.write("tokens", f"{EVIL} {ALICE}\nbob {BOB}\n")
        server = self.serve(f"--token_file={tokens}")
        with warpcall.connect(server.address, timeout=SECONDS_MAX, token=ALICE) as alice, \
                warpcall.connect(server.address, timeout=SECONDS_MAX, token=BOB) as bob:
            held = bob.put(X, label="confidential")
            bob.benchmark("matmul", "64x64x64", implementations=["reference"], iterations=3)
            alice.describe("softmax", (4, 8))
            with self.assertRaises(warpcall.PermissionDenied):
                bob.push(f"// {EVIL}".encode())
            shown = self.status(server)["inspections"]
            texts = [self.get(server, "/")[1], self.get(server, "/status.json")[1]]
            self.page(server)
        self.assertEqual([(each["method"], each["kernel"], each["outcome"], each["principal"]) for each in shown],
                         [("push", "", "PERMISSION_DENIED", "bob"), ("describe", "softmax", "OK", EVIL),
                          ("benchmark", "matmul", "OK", "bob")])
        self.assertTrue(all(each["seconds"] > 0 and each["unix_seconds"] > 1.7e9 for each in shown))
        rates = self.status(server)["devices"][0]["multiply_adds_flops_per_second"]
        self.assertGreater(rates["float32"], 0)
        self.assertIsNone(rates["bfloat16"])
        for text in texts:
            for secret in (ALICE, BOB, held.handle, "confidential", str(self.folder), EVIL):
                self.assertNotIn(secret, text)

    def test_a_pushes_outcome_is_its_verdict(self):
        server = self.serve()
        with warpcall.connect(server.address, timeout=SECONDS_MAX) as gpu:
            verdict = gpu.push(SOURCE / "client" / "examples" / "push" / "gelu.cu")
        shown, = self.status(server)["inspections"]
        self.assertEqual((shown["method"], shown["kernel"], shown["push"], shown["outcome"], shown["principal"]),
                         ("push", "gelu", verdict.name, verdict.status, ""))
        self.assertNotIn(verdict.status, ("", "OK"))
        self.assertIn(f"gelu: {verdict.name}", [cell for row in self.page(server).rows for cell in row])

    def test_a_caller_that_the_log_does_not_name_has_no_name(self):
        server = self.serve(f"--token_file={self.write('tokens', f'alice {ALICE}')}", "--log_level=warning")
        with warpcall.connect(server.address, timeout=SECONDS_MAX, token=ALICE) as alice:
            alice.describe("softmax", (4, 8))
        shown, = self.status(server)["inspections"]
        self.assertEqual((shown["kernel"], shown["principal"]), ("softmax", ""))

    def test_head_has_the_headers_of_get_and_no_body(self):
        server = self.serve()
        for path in ("/", "/status.json"):
            headers, body = self.get(server, path, "HEAD")
            self.assertEqual(body, "")
            self.assertGreater(int(headers["Content-Length"]), 1000)
        self.assertRegex(self.get(server, "/")[0]["Content-Security-Policy"],
                         r"^default-src 'none'; style-src 'sha256-\S{44}'; script-src 'sha256-\S{44}'; "
                         "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$")


# Shows the page as wide as a phone, and writes into the title how wide its content is.
PHONE = b"""<!DOCTYPE html><title>not measured</title><iframe src="/" style="width: 360px"></iframe><script>
onload = () => { const page = document.querySelector("iframe").contentDocument;
                 const tables = [...page.querySelectorAll("table")].map((table) => table.scrollWidth);
                 document.title = page.documentElement.scrollWidth + " " + Math.max(...tables); };
</script>"""


class Between(http.server.BaseHTTPRequestHandler):
    """Passes on to `Between.server`, and keeps what a browser says that it wants each request for."""
    server_address, wanted, refreshed = "", [], threading.Event()

    def do_GET(self):
        if self.path == "/phone":
            return self.send("text/html", PHONE)
        connection = http.client.HTTPConnection(self.server_address, timeout=SECONDS_MAX)
        connection.request("GET", self.path)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        if self.path == "/":
            Between.wanted.append(self.headers.get("Sec-Fetch-Dest"))
            body = body.replace(b"<h2>Kernels</h2>", b"<h2>Kernels, shown %d</h2>" % len(Between.wanted))
        # This directive says who may frame the page, not what the page may load.
        policy = (reply.headers["Content-Security-Policy"] or "").replace("; frame-ancestors 'none'", "")
        return self.send(reply.headers["Content-Type"], body, policy)

    def send(self, content_type, body, policy=""):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@unittest.skipUnless(any(map(shutil.which, BROWSERS)), "no chromium here")
class BrowserTest(AccessCase):
    def browse(self, path):
        """The text of a page after 7 s, with what its script has changed."""
        Between.server_address, Between.wanted = self.serve().metrics_address, []
        between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        thread = threading.Thread(target=between.serve_forever)
        thread.start()
        try:
            browser = next(filter(None, map(shutil.which, BROWSERS)))
            run = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                                  "--virtual-time-budget=7000", f"--user-data-dir={self.path('profile')}",
                                  f"http://127.0.0.1:{between.server_port}{path}"],
                                 capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
        finally:
            between.shutdown()
            thread.join()
            between.server_close()
        return run.stdout

    def test_on_a_phone_tables_scroll_and_the_page_does_not(self):
        page, table = map(int, re.search(r"<title>(\d+) (\d+)</title>", self.browse("/phone")).groups())
        self.assertLessEqual(page, 360)
        self.assertGreater(table, 360)

    def test_a_browser_shows_the_page_and_refreshes_it(self):
        shown_at_the_end = self.browse("/")
        self.assertEqual(Between.wanted[0], "document")
        self.assertIn("empty", Between.wanted[1:], "the page did not fetch itself")
        shown, = re.findall(r"<h2>Kernels, shown (\d+)</h2>", shown_at_the_end)
        self.assertGreater(int(shown), 1)
        self.assertIn('<td class="good">healthy</td>', shown_at_the_end)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
