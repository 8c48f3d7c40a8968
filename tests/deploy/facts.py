"""Facts that the server reports, for the documents and files of deploy/ that repeat them."""

import re
import subprocess

MIB = 1 << 20
# docs/operate.md, "Flags": the server's memory beside the memory that its flags allow.
OWN_MIB = 100
# Work that does not stop ends with the process so long after the drain: docs/operate.md, "Stop".
STOP_SECONDS = 2


def flags_of(binary):
    """{name: default as text} of `warpcalld --help`; without a default: ""."""
    text = subprocess.run([binary, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=True, timeout=60).stdout
    # The first column of lines as "  --staging_mib INT:INT in [1 - 1048576]=2048     Staging memory".
    columns = [line.strip().split("  ")[0] for line in text.splitlines() if line.startswith("  --")]
    return {re.match(r"--(\w+)", column)[1]: column.partition("=")[2].strip("[. ]").partition(",")[0]
            for column in columns}


def given(words):
    """{name: value} of the words --name=value of a command line; --name: "true"."""
    found = {}
    for word in words:
        match = re.fullmatch(r"--(\w+)(?:=(.*))?", word)
        if match is None:
            raise ValueError(f"{word!r} is not --name=value")
        if match[1] in found:
            raise ValueError(f"--{match[1]} is there twice")
        found[match[1]] = "true" if match[2] is None else match[2]
    return found


class Settings:
    """The flags of a server: those that are given, and the defaults of all others."""

    def __init__(self, defaults, words):
        self.given = given(words)
        unknown = set(self.given) - set(defaults)
        if unknown:
            raise ValueError(f"warpcalld has no flags {sorted(unknown)}")
        self.all = defaults | self.given

    def number(self, name):
        return float(self.all[name])

    def port(self, name):
        """The port of the flag's only address."""
        return int(self.all[name].rpartition(":")[2])

    def stop_seconds(self):
        """From SIGTERM to the process's end, at most."""
        return self.number("lame_duck_seconds") + self.number("drain_seconds") + STOP_SECONDS

    def memory_mib(self, devices):
        """Host memory that the flags let the server hold: `sum_mib` of its log."""
        return (devices * (self.number("staging_mib") + self.number("queue_mib"))
                + self.number("reception_mib") + 4 * self.number("max_message_mib") + self.number("resident_mib"))


def quantity(text):
    """Reads a quantity of Kubernetes: bytes of memory, or a plain number."""
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", str(text))
    return int(match[1]) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[match[2]]
