#!/usr/bin/env python3
"""The pictures of the documents, made anew from a real server without a GPU: its page as a browser shows it, the
dashboard of deploy/ over a real Prometheus, what `warpcall bench --plot` draws, and the text of `warpcall top`.

    pictures_test.py ROOT WARPCALLD WARPCALL [write]

Each is whole, and docs/pictures has one of that name, small enough, which a document shows. `write` puts the new ones
there, and the text into docs/operate.md. Exit status 77: skipped, there is no Chromium or no Prometheus.
"""

import contextlib
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
import urllib.request
import xml.etree.ElementTree
import zlib

sys.dont_write_bytecode = True

import dashboard_page_test  # noqa: E402
import page  # noqa: E402
import processes  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
SECONDS_MAX = 120
BYTES_MAX, ALL_BYTES_MAX = 150_000, 500_000
PAGE_SIZE = (1200, 760)
# The dashboard's first lines of panels, in units of Grafana's grid: numbers, alerts, requests.
DASHBOARD_LINES = 22
SWEEP = ["softmax", "--shape", "1024x{256..4096:x2}", "--type", "f32", "--implementation", "cpu", "--implementation",
         "library", "--implementation", "manual"]
# Longer than the browser and `warpcall top` take.
LOAD = [dashboard_page_test.MIX, "--warmup", "0", "--rate", "150", "--concurrency", "8", "--duration", "60"]
TOP = re.compile(r"(<!-- begin top -->\n```text\n)(.*?)(```\n<!-- end top -->\n)", re.S)
TALLEST_TERMINAL = 40


def check(condition, message):
    if not condition:
        raise Failure(message)


# ---- making ----------------------------------------------------------------------------------------

def run(*arguments, **options):
    result = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                            timeout=SECONDS_MAX, **options)
    check(result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}")
    return result.stdout


@contextlib.contextmanager
def loaded(warpcall, grpc, metrics):
    """Until the page has rates: those of the last minute are counted from the first request on."""
    busy = subprocess.Popen([warpcall, "--server", grpc, "load", *LOAD], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        processes.wait_until("requests to be counted", lambda: counted(metrics) > 1000, SECONDS_MAX)
        yield
    finally:
        busy.terminate()
        busy.wait()


def counted(metrics):
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=SECONDS_MAX) as response:
        text = response.read().decode()
    return sum(float(value) for value in re.findall(r"^warpcall_requests_total\{.*\} (\S+)$", text, re.M))


def photograph(chromium, url, picture, scratch):
    width, height = PAGE_SIZE
    run(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000",
        f"--user-data-dir={scratch / 'browser'}", f"--window-size={width},{height}", f"--screenshot={picture}", url)


def draw_dashboard(binaries, scratch, picture):
    with contextlib.ExitStack() as stack:
        watch = dashboard_page_test.observe(binaries, scratch, stack)
        panels = [panel for panel in watch.dashboard["panels"]
                  if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= DASHBOARD_LINES]
        text = page.draw(watch.dashboard | {"panels": panels}, watch.values, watch.marks, watch.span)
    picture.write_text(text, encoding="utf-8")


def make(chromium, binaries, scratch, folder):
    """Returns the text of `warpcall top`."""
    _, warpcalld, warpcall = binaries
    with processes.warpcalld(warpcalld, scratch, *dashboard_page_test.FLAGS) as (grpc, metrics):
        drawn = run(warpcall, "--server", grpc, "bench", *SWEEP, "--plot", "-")
        # Whose machine it is concerns nobody.
        (folder / "bench.svg").write_text(re.sub(r"host [^;<]*; ", "", drawn), encoding="utf-8")
        with loaded(warpcall, grpc, metrics):
            photograph(chromium, f"http://{metrics}/", folder / "page.png", scratch)
            top = run(warpcall, "top", "--once", "--metrics", metrics)
    draw_dashboard(binaries, scratch, folder / "dashboard.svg")
    return top


def write(root, made, top):
    pictures = root / "docs" / "pictures"
    shutil.rmtree(pictures, ignore_errors=True)
    shutil.copytree(made, pictures)
    operate = root / "docs" / "operate.md"
    text = operate.read_text(encoding="utf-8")
    operate.write_text(TOP.sub(lambda block: block[1] + top + block[3], text), encoding="utf-8")


# ---- checks ----------------------------------------------------------------------------------------

def words_of(svg):
    return [element.text or "" for element in xml.etree.ElementTree.fromstring(svg.read_text(encoding="utf-8")).iter()
            if element.tag.endswith("text")]


def check_page(made):
    """All of the browser's window, and something in it: an empty page has one colour."""
    data = (made / "page.png").read_bytes()
    check(data[:8] == b"\x89PNG\r\n\x1a\n", "page.png is no PNG")
    size, pixels, at = None, b"", 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            size = struct.unpack(">II", data[at + 8:at + 16])
        if kind == b"IDAT":
            pixels += data[at + 8:at + 8 + length]
        at += length + 12
    check(size == PAGE_SIZE, f"page.png is {size}")
    inked = sum(byte != 0 for byte in zlib.decompress(pixels))  # rows differ from the ones above
    check(inked > 10_000, f"page.png has {inked} bytes that are not plain paper")


def check_bench(made):
    words = " ".join(words_of(made / "bench.svg"))
    for word in ("softmax", "cpu", "manual", "copy ceiling"):
        check(word in words, f"bench.svg does not say {word}: {words}")


def check_dashboard(made):
    words = words_of(made / "dashboard.svg")
    for title in ("Overview", "Answers", "Latency of all requests", "Requests by kernel and implementation"):
        check(title in words, f"dashboard.svg lacks {title}")


def headings(text):
    return [line.split() for line in text.splitlines() if line and line.upper() == line]


def check_top(root, top):
    check("softmax" in top and "cpu" in top, f"top shows no kernels: {top}")
    check(top.count("\n") <= TALLEST_TERMINAL, f"top prints {top.count(chr(10))} lines")
    shown = TOP.search((root / "docs" / "operate.md").read_text(encoding="utf-8"))
    check(shown and headings(shown[2]) == headings(top), f"docs/operate.md shows another top than {top}")


def check_documents(root, made):
    """The documents' pictures are those that are made here, small, and shown."""
    shown = root / "docs" / "pictures"
    names = sorted(path.name for path in made.iterdir())
    check(sorted(path.name for path in shown.iterdir()) == names, f"{shown} has others than {names}")
    sizes = {name: (shown / name).stat().st_size for name in names}
    check(max(sizes.values()) <= BYTES_MAX and sum(sizes.values()) <= ALL_BYTES_MAX, f"too large: {sizes}")
    texts = "".join(path.read_text(encoding="utf-8") for path in [root / "README.md", *(root / "docs").glob("*.md")])
    for name in names:
        check(f"pictures/{name})" in texts, f"no document shows {name}")


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[4:] not in ([], ["write"]):
        sys.exit(__doc__)
    root, binaries = pathlib.Path(sys.argv[1]), [shutil.which("prometheus"), *sys.argv[2:4]]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or binaries[0] is None:
        print(f"skipped: chromium is {chromium}, prometheus is {binaries[0]}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        made = scratch / "made"
        made.mkdir()
        try:
            top = make(chromium, binaries, scratch, made)
            for each in (check_page, check_bench, check_dashboard):
                each(made)
            if len(sys.argv) == 5:
                write(root, made, top)
            check_top(root, top)
            check_documents(root, made)
        except Failure:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
