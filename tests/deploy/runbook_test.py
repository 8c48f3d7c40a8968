#!/usr/bin/env python3
"""docs/RUNBOOK.md: one section for each alert and no others, with actions that need only existing tools.

    runbook_test.py WARPCALLD

Exit status 77: skipped, for want of Debian's package python3-yaml.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-yaml)")
    sys.exit(77)

sys.dont_write_bytecode = True

import facts  # noqa: E402
import processes  # noqa: E402

DEPLOY = processes.deployed_folder()
ROOT = DEPLOY.parent
DOCUMENTS = ("docs/RUNBOOK.md", "docs/UPGRADE.md", "docs/CAPACITY.md")
# Start of a section; actions may be a table by a label.
BEGINS = (r"(?s)\A\n(Page|Ticket)\. \*\*Symptom:\*\* .{40,}?\n\n\*\*Metrics:\*\* .+?\n\n"
          r"\*\*Actions(:\*\*|\*\*[,:])")
SEVERITIES = {"Page": "page", "Ticket": "ticket"}
# Flags of other programs, by these words in their command.
OTHERS = re.compile(r"kubectl|docker|apt|nvidia-smi|storage\.tsdb|--server |warpcall (load|bench|run|top|tune|describe)")

WARPCALLD = sys.argv[1] if len(sys.argv) > 1 else ""


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def anchor_of(heading):
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def alerts():
    """{alert: its rule}."""
    groups = yaml.safe_load(text_of("deploy/prometheus/alerts.yml"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def sections():
    """{heading: text} of the runbook, those that are named as alerts are."""
    parts = re.split(r"^## (.*)\n", text_of("docs/RUNBOOK.md"), flags=re.M)
    return {heading: text for heading, text in zip(parts[1::2], parts[2::2]) if heading.startswith("Warpcall")}


def told():
    """{alert: (its rule, its section)} of the alerts that have one."""
    texts = sections()
    return {name: (rule, texts[name]) for name, rule in alerts().items() if name in texts}


class RunbookTest(unittest.TestCase):
    def test_each_alert_has_a_section_and_each_section_an_alert(self):
        missing = [f"alert {name} has no section: docs/RUNBOOK.md lacks the heading '## {name}' (#{anchor_of(name)})"
                   for name in alerts().keys() - sections().keys()]
        missing += [f"the section '## {name}' of docs/RUNBOOK.md has no alert in deploy/prometheus/alerts.yml"
                    for name in sections().keys() - alerts().keys()]
        self.assertEqual(missing, [], "\n".join(missing))
        self.assertGreater(len(sections()), 10)

    def test_each_alert_links_to_its_section(self):
        (base,) = re.findall(r"^sed -i 's\|(file://[^|]+)\|https://[^|]+\|' deploy/prometheus/alerts.yml$",
                             text_of("docs/RUNBOOK.md"), re.M)
        wrong = [f"alert {name} has runbook_url {url}, expected {expected}" for name, rule in alerts().items()
                 if (url := rule["annotations"].get("runbook_url"))
                 != (expected := f"{base}/docs/RUNBOOK.md#{anchor_of(name)}")]
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_each_section_has_severity_symptom_metrics_and_actions(self):
        for name, (rule, text) in told().items():
            with self.subTest(name):
                self.assertRegex(text, BEGINS)
                self.assertEqual(SEVERITIES[text.strip().partition(".")[0]], rule["labels"]["severity"])

    def test_each_section_names_the_metrics_of_its_alert(self):
        """A section names the metrics that its alert compares, or its recorded rule uses."""
        groups = [group for name in ("rules", "alerts")
                  for group in yaml.safe_load(text_of(f"deploy/prometheus/{name}.yml"))["groups"]]
        recorded = {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}
        for name, (rule, text) in told().items():
            expression = rule["expr"]
            for record in re.findall(r"\bwarpcall:[\w:]+", expression):
                expression += recorded[record]
            wanted = set(re.findall(r"\b(?:warpcall_\w+|process_\w+|up)\b(?=[{\[ )])", expression))
            self.assertTrue(wanted, name)
            named = text.partition("**Actions")[0]
            self.assertTrue([metric for metric in wanted if f"`{metric}" in named], (name, wanted))

    def test_what_the_log_says_is_what_the_server_writes(self):
        sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "server").rglob("*.cc"))
        quoted = {text for path in DOCUMENTS for text in re.findall(r'msg="([^"]*)"', text_of(path))}
        self.assertGreater(len(quoted), 5)
        self.assertEqual({text for text in quoted if f'"{text}"' not in sources}, set())

    def test_prometheus_takes_the_expressions(self):
        if shutil.which("promtool") is None:
            self.skipTest("there is no promtool (Debian: package prometheus)")
        expressions = re.findall(r"`(topk\([^`]+)`", text_of("docs/RUNBOOK.md"))
        self.assertGreater(len(expressions), 1)
        rules = [{"record": f"asked:{number}", "expr": text} for number, text in enumerate(expressions)]
        status, said = processes.promtool(["check", "rules"], {"groups": [{"name": "asked", "rules": rules}]})
        self.assertEqual(status, 0, said)


class ServerTest(unittest.TestCase):
    """Compares the names in the documents with a server's."""

    @classmethod
    def setUpClass(cls):
        cls.metrics = processes.idle_metrics(WARPCALLD)
        cls.flags = set(facts.flags_of(WARPCALLD)) | {"check"}

    def test_metrics_are_the_servers(self):
        """This server has no GPU and no certificate: deploy/README.md lists their metrics."""
        families = set(re.findall(r"^# TYPE (\S+) ", self.metrics, re.M))
        listed = text_of("deploy/README.md").partition("\n## Starting")[0]
        for path in DOCUMENTS:
            for metric in set(re.findall(r"`((?:warpcall|process)_[a-z_]+)[`{]", text_of(path))):
                known = metric in families or (metric.startswith(("warpcall_gpu_", "warpcall_cuda_", "warpcall_certificate_"))
                                               and (metric in listed or metric.replace("warpcall_gpu", "`") in listed))
                self.assertTrue(known, f"{path} names {metric}, which no server has")

    def test_reasons_are_the_servers(self):
        """Reasons of refusals in the tables equal the labels."""
        known = set(re.findall(r'^warpcall_rejected_total\{reason="(\w+)"\}', self.metrics, re.M))
        known |= {"run_time", "device_lost"}
        text = text_of("docs/RUNBOOK.md")
        table = re.search(r"^\| reason \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)[1]
        named = set(re.findall(r"^\| `(\w+)` \|", table, re.M)) | set(re.findall(r'`reason="(\w+)"`', text))
        self.assertGreater(len(named), 5)
        self.assertLessEqual(named, known)

    def test_flags_are_the_servers(self):
        for path in DOCUMENTS:
            for code in re.findall(r"`([^`\n]*--[^`\n]*)`", text_of(path)):
                if OTHERS.search(code):
                    continue
                for flag in re.findall(r"--(\w+)", code):
                    self.assertIn(flag, self.flags, (path, code))

    def test_commands_are_the_clients(self):
        program = pathlib.Path(WARPCALLD).with_name("warpcall")
        help_text = subprocess.run([program, "help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   check=True, timeout=60).stdout
        known = set(re.findall(r"^  (\w+)  ", help_text, re.M))
        for path in DOCUMENTS:
            for command in re.findall(r"`warpcall (?:--server \w+ )?(\w+)", text_of(path)):
                self.assertIn(command, known, path)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
