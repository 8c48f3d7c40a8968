#!/usr/bin/env python3
"""Writes the reference: what the programs say of themselves, as Markdown.

    generate.py BUILD FOLDER

flags.md is `warpcalld --help`, commands.md `warpcall help`, metrics.md what a server without a GPU exports, service.md
the proto's comments, python.md the package's docstrings. A test compares them with docs/reference; after a change of
those texts run it for that folder.
"""

import inspect
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import typing
import urllib.error
import urllib.request

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 60
# CLI11's column of descriptions.
HELP_COLUMN = 30
Field = descriptor_pb2.FieldDescriptorProto


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, COLUMNS="100", NO_COLOR="1")).stdout


def escaped(text):
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# ---- flags -----------------------------------------------------------------------------------------

SPECIFICATION = re.compile(r"(--\w+)(?: (\w+)(?::(\{.*?\}|\w+ in \[.*?\]|[A-Z]+))?(?:=(.*?))?(?: \.\.\.)?)?$")


def flags_of(lines):
    """(name and value as --help has them, description) of each flag in a group's lines."""
    found = []
    for line in lines:
        if line.startswith("  -"):
            # The column of descriptions may fall on a space of a long specification.
            is_short = (line[HELP_COLUMN - 1:HELP_COLUMN] == " " and line[HELP_COLUMN:HELP_COLUMN + 1].isupper())
            found.append([line[:HELP_COLUMN], line[HELP_COLUMN:]] if is_short else [line, ""])
        elif line.startswith(" " * HELP_COLUMN):
            found[-1][1] += " " + line.strip()
        else:
            found[-1][0] += " " + line.strip()
    return [(specification.strip(), description.strip()) for specification, description in found]


def flag_item(specification, description):
    if specification == "-h,--help":
        return f"- **`--help`**: {description}"
    match = SPECIFICATION.match(specification)
    if match is None:
        sys.exit(f"--help has a flag that generate.py does not understand: {specification}")
    name, _, values, default = match.groups()
    facts = []
    if values is not None and values.startswith("{"):
        facts.append(values[1:-1].replace(",", ", "))
    elif values is not None and values != "DIR":
        facts.append(re.sub(r"\w+ in \[(.*) - (.*)\]", r"\1 to \2", values).replace("3.1536e+07", "31536000"))
    if default:
        facts.append("default " + re.sub(r"^\[(.*)\]$", r"\1", default))
    return f"- **`{name}`**{' (' * bool(facts)}{'; '.join(facts)}{')' * bool(facts)}: {description}"


def flags(build):
    text = output_of(build / "bin" / "warpcalld", "--help")
    yield "# Flags of warpcalld\n"
    yield ("Set flags on the command line, in environment variables `WARPCALLD_NAME` or in `--flagfile`. In names, "
           "`-` may replace `_`. Sizes are in MiB and times in seconds unless the name says otherwise.\n")
    for heading, lines in re.findall(r"^(\w+):\n((?: .*\n)+)", text, re.M):
        yield f"## {'General' if heading == 'Options' else heading}\n"
        yield "\n".join(textwrap.fill(flag_item(*flag), 120, subsequent_indent="  ", break_long_words=False,
                                      break_on_hyphens=False)
                        for flag in flags_of(lines.splitlines())) + "\n"


# ---- commands --------------------------------------------------------------------------------------

def commands(build):
    warpcall = build / "bin" / "warpcall"
    text = output_of(warpcall, "help").rstrip()
    yield "# Commands of warpcall\n"
    yield f"```text\n{text}\n```\n"
    listed = text.partition("Subcommands:\n")[2]
    for name in re.findall(r"^  ([a-z]+) ", listed, re.M):
        yield f"## {name}\n"
        yield f"```text\n{output_of(warpcall, 'help', name).rstrip()}\n```\n"


# ---- metrics ---------------------------------------------------------------------------------------

def read_metrics(build):
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [build / "bin" / "warpcalld", "--devices=cpu", "--self_test=off", f"--listen=unix:{folder}/socket",
             "--metrics_listen=127.0.0.1:0", "--lame_duck_seconds=0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = re.search(r"metrics on 127\.0\.0\.1:(\d+)", server.stdout.readline()).group(1)
            end = time.monotonic() + START_SECONDS_MAX
            while True:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
                if 'warpcall_server_phase{phase="serving"} 1' in text:
                    return text
                if time.monotonic() > end:
                    sys.exit(f"the server does not serve after {START_SECONDS_MAX} s")
                time.sleep(0.05)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


def metrics(build):
    text = read_metrics(build)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)", text, re.M))
    yield "# Metrics\n"
    yield ("What a server without a GPU exports at `http://127.0.0.1:9470/metrics`. A server with GPUs or certificates has "
           "more: [deployment](../../deploy/README.md#metrics) lists all with their labels.\n")
    yield "| metric | type | meaning |\n|---|---|---|"
    yield "\n".join(f"| `{name}` | {kinds[name]} | {escaped(meaning)} |"
                    for name, meaning in re.findall(r"^# HELP (\S+) (.*)", text, re.M)) + "\n"


# ---- the service -----------------------------------------------------------------------------------

def read_proto():
    with tempfile.TemporaryDirectory() as folder:
        written = pathlib.Path(folder) / "set"
        output_of("protoc", f"--proto_path={ROOT / 'proto'}", "--include_source_info", f"--descriptor_set_out={written}",
                  "warpcall/v1/warpcall.proto")
        return descriptor_pb2.FileDescriptorSet.FromString(written.read_bytes()).file[0]


class Comments:
    def __init__(self, file):
        self.by_path = {tuple(location.path): location for location in file.source_code_info.location}

    def of(self, *path):
        location = self.by_path.get(path)
        if location is None:
            return ""
        return f"{location.leading_comments} {location.trailing_comments}".strip()


def type_of(field, nested):
    name = field.type_name.rpartition(".")[2]
    entry = nested.get(name)
    if entry is not None and entry.options.map_entry:
        key, value = (type_of(part, {}) for part in entry.field)
        return f"map of {key} to {value}"
    text = name or Field.Type.Name(field.type)[len("TYPE_"):].lower()
    return f"repeated {text}" if field.label == Field.LABEL_REPEATED else text


def message(found, path, comments, prefix=""):
    if found.options.map_entry:
        return
    name = prefix + found.name
    yield f"### {name}\n"
    comment = comments.of(*path)
    if comment:
        yield textwrap.fill(" ".join(comment.split()), 120) + "\n"
    nested = {inner.name: inner for inner in found.nested_type}
    if found.field:
        yield "| number | field | type | meaning |\n|---|---|---|---|"
        yield "\n".join(
            f"| {field.number} | `{field.name}` | {type_of(field, nested)} | {escaped(comments.of(*path, 2, i))} |"
            for i, field in enumerate(found.field)) + "\n"
    for i, inner in enumerate(found.nested_type):
        yield from message(inner, (*path, 3, i), comments, f"{name}.")
    for i, inner in enumerate(found.enum_type):
        yield from values(inner, (*path, 4, i), comments, f"{name}.")


def values(found, path, comments, prefix=""):
    yield f"### {prefix}{found.name}\n"
    comment = comments.of(*path)
    if comment:
        yield textwrap.fill(" ".join(comment.split()), 120) + "\n"
    yield "| number | value | meaning |\n|---|---|---|"
    yield "\n".join(f"| {value.number} | `{value.name}` | {escaped(comments.of(*path, 2, i))} |"
                    for i, value in enumerate(found.value)) + "\n"


def service(_):
    file = read_proto()
    comments = Comments(file)
    yield "# The service\n"
    yield f"`proto/{file.name}`, package `{file.package}`.\n"
    for i, found in enumerate(file.service):
        yield f"## {found.name}\n"
        yield "| method | request | response | meaning |\n|---|---|---|---|"
        yield "\n".join(
            f"| `{method.name}` | {'stream of ' * method.client_streaming}{method.input_type.rpartition('.')[2]} "
            f"| {'stream of ' * method.server_streaming}{method.output_type.rpartition('.')[2]} "
            f"| {escaped(comments.of(6, i, 2, j))} |" for j, method in enumerate(found.method)) + "\n"
    yield "## Messages\n"
    for i, found in enumerate(file.message_type):
        yield from message(found, (4, i), comments)
    for i, found in enumerate(file.enum_type):
        yield from values(found, (5, i), comments)


# ---- Python ----------------------------------------------------------------------------------------

def documented(name, found, level):
    """The heading, signature and docstring of a class, function or method."""
    text = inspect.getdoc(found)
    if not text:
        return
    if text.startswith(f"{name}("):  # a dataclass's own
        text = "A message of [the service](service.md)."
    yield f"{'#' * level} {name}\n"
    if callable(found) and not isinstance(found, type):
        signature = re.sub(r"<([\w.]+) object at 0x\w+>", r"\1()", str(inspect.signature(found)))
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)
        yield f"```text\n{textwrap.fill(name + signature, 110, subsequent_indent='    ', break_long_words=False)}\n```\n"
    yield text + "\n"


def members(name, found):
    for key, member in vars(found).items():
        if key.startswith("_"):
            continue
        if isinstance(member, property):
            member = member.fget
            text = inspect.getdoc(member)
            if text:
                yield f"#### {name}.{key}\n\n{text}\n"
        elif callable(member) or isinstance(member, (classmethod, staticmethod)):
            yield from documented(f"{name}.{key}", getattr(found, key), 4)


def python(_):
    sys.path.insert(0, str(ROOT / "client" / "python"))
    import warpcall  # the sources', which the path above names

    yield "# The Python package\n"
    yield ("The docstrings of `warpcall`. [Its guide](../../client/python/README.md) has examples. Each kernel of the "
           "server is a method of `Client`, too.\n")
    for name in sorted(warpcall.__all__, key=str.lower):
        found = getattr(warpcall, name)
        if isinstance(found, type):
            yield from documented(name, found, 3)
            if not issubclass(found, (Exception, typing.Dict)):
                yield from members(name, found)
        elif callable(found):
            yield from documented(name, found, 3)


PAGES = {"flags.md": flags, "commands.md": commands, "metrics.md": metrics, "service.md": service, "python.md": python}
MADE = "<!-- Made by docs/reference/generate.py. -->\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    for name, page in PAGES.items():
        lines = (line.rstrip() for line in "\n".join([MADE, *page(build)]).splitlines())
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
