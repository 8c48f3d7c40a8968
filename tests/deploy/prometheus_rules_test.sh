#!/usr/bin/env bash
# Prometheus' own checks of deploy/prometheus: the configuration and the rules are valid, and the
# rules' unit tests pass. Exit status 77: skipped, there is no promtool.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/prometheus"
if ! command -v promtool >/dev/null; then
  echo 'skipped: there is no promtool (Debian: package prometheus)'
  exit 77
fi

# Every rule has a test: a name that no test mentions may say anything. alert_cases_test.py demands
# more of alerts.
check_tested() {
  local name missing=0
  while read -r name; do
    grep -q --fixed-strings -- "$name" rules_test.yml alerts_test.yml && continue
    echo "no unit test mentions $name"
    missing=1
  done < <(sed -nE 's/^ *- record: (.*)$/\1/p' rules.yml | sort -u)
  return $missing
}

promtool check config prometheus.yml
promtool test rules rules_test.yml alerts_test.yml
check_tested
