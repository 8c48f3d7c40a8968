#!/usr/bin/env python3
"""Makes Prometheus Operator's form of the rules and alerts in ../prometheus. When these change:

    cd deploy/kubernetes; python3 prometheus_rule.py components/monitoring/prometheus_rule.yaml

Without a file's name it prints what it makes.
"""

import pathlib
import sys

HEAD = """\
# Made by deploy/kubernetes/prometheus_rule.py of deploy/prometheus/rules.yml and alerts.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: warpcall
  labels:
    app.kubernetes.io/name: warpcall
spec:
  groups:
"""


def groups_of(path):
    """The lines of a rules file below `groups:`, as they are."""
    _, found, lines = path.read_text(encoding="utf-8").partition("\ngroups:\n")
    if not found:
        sys.exit(f"{path} has no line `groups:`")
    return lines


def main():
    rules = pathlib.Path(__file__).resolve().parents[1] / "prometheus"
    lines = (groups_of(rules / "rules.yml") + groups_of(rules / "alerts.yml")).splitlines()
    text = HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
