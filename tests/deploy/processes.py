"""Processes that the tests start: warpcalld, Prometheus, and a simulated GPU's metrics. All listen on free ports of the
loopback interface, and all are ended by the process id that was started."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 90
POLL_SECONDS = 0.1
SCRAPE_SECONDS = 1


class Failure(Exception):
    """Something is wrong; the message says what."""


def wait_until(what, condition, seconds_max):
    """The condition's first value that is true."""
    deadline = time.monotonic() + seconds_max
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"waited {seconds_max} s for {what}")
        time.sleep(POLL_SECONDS)
    return value


def run_checks(checks, observe):
    """Passes the result of `observe`, called with a folder and an exit stack, to each check while the stack lives;
    prints each outcome, and returns the number of failures."""
    failures = 0
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        watch = observe(folder, stack)
        for check in checks:
            try:
                check(watch)
                print(f"ok      {check.__name__}")
            except Failure as failure:
                failures += 1
                print(f"FAILED  {check.__name__}: {failure}")
    return failures


@contextlib.contextmanager
def running(arguments, log):
    """The process, with its output in the file `log`. It must live until it is told to end, and then
    end with status 0."""
    with open(log, "wb") as output:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
    try:
        yield process
        process.terminate()
        status = process.wait(timeout=STOP_SECONDS_MAX)
        if status != 0:
            raise Failure(f"{arguments[0]} ended with status {status}: {log.read_text()[-4000:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


FREE_PORTS = ("--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0")


@contextlib.contextmanager
def warpcalld(binary, folder, *flags, ports=FREE_PORTS, before=()):
    """Yields its addresses: for gRPC, for metrics. `before` are words before the program."""
    log = folder / "warpcalld.log"
    arguments = [*before, binary, *ports, "--lame_duck_seconds=0", *flags]
    with running(arguments, log) as process:
        def ready():
            if process.poll() is not None:
                raise Failure(f"warpcalld left at start: {log.read_text()}")
            return re.search(r"serving on ([^ ,]+), metrics on ([^\s\"]+)[\n\"]", log.read_text())
        yield wait_until("warpcalld to serve", ready, START_SECONDS_MAX).groups()


def idle_metrics(binary):
    """The text of /metrics of a server that has served nothing and has a file that it may read again, so that it counts
    failures of that."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        policies = folder / "policies.json"
        policies.write_text('{"default": {}}', encoding="utf-8")
        with warpcalld(binary, folder, "--devices=cpu", f"--policy_file={policies}") as (_, address):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=START_SECONDS_MAX) as response:
                return response.read().decode()


# One GPU of a server with TLS, for the expressions that need their values. Names are those of the public contract; the
# device spends half of each second in a kernel that moves 3e9 bytes.
GPU_METRICS = """\
warpcall_build_info{{version="0",compiler="none",cuda="0"}} 1
warpcall_kernel_bytes_total{{kernel="gelu",implementation="vectorized",device="cuda:0"}} {bytes}
warpcall_kernel_duration_seconds_sum{{kernel="gelu",implementation="vectorized",\
data_type="float32",device="cuda:0"}} {seconds}
warpcall_kernel_occupancy_ratio{{kernel="gelu",implementation="vectorized",device="cuda:0",\
kind="theoretical"}} 1
warpcall_kernel_waves{{kernel="gelu",implementation="vectorized",device="cuda:0"}} 7.5
warpcall_kernel_wave_efficiency_ratio{{kernel="gelu",implementation="vectorized",\
device="cuda:0"}} 0.9375
warpcall_device_bandwidth_ceiling_bytes_per_second{{device="cuda:0"}} 8e9
warpcall_device_bandwidth_ceiling_noise_ratio{{device="cuda:0"}} 0.02
warpcall_cuda_errors_total{{code="cudaErrorIllegalAddress"}} 0
warpcall_gpu_xid_errors_total{{device="cuda:0",xid="13"}} 1
warpcall_gpu_xid_errors_total{{device="cuda:0",xid="79"}} 0
warpcall_gpu_throttled{{device="cuda:0",reason="hardware thermal slowdown"}} 0
warpcall_certificate_expiry_seconds{{file="server.pem"}} 4e9
warpcall_compile_seconds_bucket{{le="0.016384"}} 0
warpcall_compile_seconds_bucket{{le="0.032768"}} {seconds}
warpcall_compile_seconds_bucket{{le="+Inf"}} {seconds}
warpcall_compile_seconds_count {seconds}
warpcall_compile_cache_hits_total{{cache="memory"}} {seconds}
warpcall_compile_cache_misses_total{{cache="memory"}} {seconds}
warpcall_compile_cache_bytes{{cache="memory"}} 20000
warpcall_gpu_sm_active_ratio{{device="cuda:0"}} 0.5
warpcall_gpu_sm_occupancy_ratio{{device="cuda:0"}} 0.5
warpcall_gpu_dram_bandwidth_ratio{{device="cuda:0"}} 0.5
warpcall_gpu_tensor_active_ratio{{device="cuda:0"}} 0.5
warpcall_gpu_power_watts{{device="cuda:0"}} 300
warpcall_gpu_temperature_celsius{{device="cuda:0"}} 50
"""
GPU_OF_CEILING = 3e9 / 0.5 / 8e9


class GpuMetricsHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        seconds = time.monotonic()
        body = GPU_METRICS.format(bytes=3e9 * seconds, seconds=0.5 * seconds).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):  # noqa: A002  (the base class's name)
        pass


@contextlib.contextmanager
def gpu_metrics():
    """Yields the address that serves GPU_METRICS."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), GpuMetricsHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def configuration(text, folder, scrape_seconds, server, gpu):
    """deploy/prometheus/prometheus.yml's text with this test's targets, in shorter intervals."""
    for old, new in [("scrape_interval: 15s", f"scrape_interval: {scrape_seconds}s"),
                     ("evaluation_interval: 15s", f"evaluation_interval: {scrape_seconds}s"),
                     ("scrape_timeout: 10s", f"scrape_timeout: {scrape_seconds}s"),
                     ("- rules.yml", f"- {folder}/rules.yml"),
                     ("- alerts.yml", f"- {folder}/alerts.yml"),
                     ('"warpcalld:9470"', f'"{server}"')]:
        if text.count(old) != 1:
            raise Failure(f"prometheus.yml has {old!r} {text.count(old)} times; expected once")
        text = text.replace(old, new)
    if gpu is None:
        return text
    return text + f"""
  - job_name: simulated_gpu
    static_configs:
      - targets: ["{gpu}"]
"""


def free_addresses(count):
    """On a loopback address that is this process's, by its id: no other test takes a port there."""
    pid = os.getpid()
    host = f"127.{1 + (pid >> 16) % 254}.{(pid >> 8) % 256}.{pid % 256}"
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((host, 0))
        return ["{}:{}".format(*probe.getsockname()) for probe in probes]


def resident_mib(pid):
    """Memory that the process has in use."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


class Prometheus:
    """The HTTP API of a Prometheus server."""

    def __init__(self, address):
        self.address = address

    def get(self, path, **parameters):
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise Failure(f"{path} {parameters}: {error.read().decode()}") from error

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        data = self.get("/api/v1/query", query=expression)
        if data["resultType"] != "vector":
            raise Failure(f"{expression}: a {data['resultType']}, expected a vector")
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def rules(self):
        return [rule for group in self.get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def answers(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                return True
        except OSError:  # nobody listens yet, or it takes its time
            return False


@contextlib.contextmanager
def prometheus(binary, folder, deployed, targets, scrape_seconds=SCRAPE_SECONDS, before=()):
    """Yields a Prometheus that scrapes (server, gpu or None) with the configuration in `deployed`. `before` are words
    before the program."""
    config = folder / "prometheus.yml"
    text = (deployed / "prometheus.yml").read_text(encoding="utf-8")
    config.write_text(configuration(text, deployed, scrape_seconds, *targets), encoding="utf-8")
    api = Prometheus(*free_addresses(1))
    log = folder / "prometheus.log"
    arguments = [*before, binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={api.address}", "--log.level=warn"]
    with running(arguments, log) as process:
        def ready():
            if process.poll() is not None:
                raise Failure(f"prometheus left at start: {log.read_text()}")
            return api.answers()
        wait_until("prometheus to be ready", ready, START_SECONDS_MAX)
        yield api


def load(binary, server, arguments):
    """Returns the report of `warpcall load`."""
    command = [binary, "--server", server, "--json", "load", *arguments]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, timeout=400)
    # 1: some requests were refused, as they should be.
    if result.returncode not in (0, 1) or not result.stdout:
        raise Failure(f"{command} ended with status {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def promtool(words, document):
    """`promtool WORDS FILE`, with the document in the file: its status, and all that it says."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        json.dump(document, file)  # which YAML is, too
        file.flush()
        done = subprocess.run(["promtool", *words, file.name], capture_output=True, text=True, check=False,
                              timeout=60)
    return done.returncode, done.stdout + done.stderr


def deployed_folder():
    return pathlib.Path(__file__).resolve().parents[2] / "deploy"


def dashboard():
    """Returns the generator's dashboard for Grafana."""
    output = subprocess.run([sys.executable, deployed_folder() / "grafana" / "dashboard.py"],
                            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, stdin=subprocess.DEVNULL,
                            capture_output=True, check=True, timeout=60).stdout
    return json.loads(output)
