#!/usr/bin/env python3
"""Made-up runs that chaos_test.py must reject, and runs that it must accept.

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import pathlib
import re
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True

try:
    import chaos_client
    import numpy as np
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(77)

import chaos_judge as judge  # noqa: E402
from chaos_faults import ALERTS, GPU_ALERTS, Fault  # noqa: E402
from processes import Failure, deployed_folder  # noqa: E402

# The second one has restarted more often than it should.
FIRST, SECOND = (types.SimpleNamespace(name=name, instance=f"{name}:9470", job="warpcall", starts=starts)
                 for name, starts in (("i1", [0, 10, 20, 30, 40]), ("i2", [0, 10, 20, 30, 40, 50])))
APART = types.SimpleNamespace(name="guarded", instance="i4:9470", job="guarded", starts=[0])
SERVERS = {server.name: server for server in (FIRST, SECOND, APART)}
RULES = {"WarpcallDown": judge.Rule(8, 0), "WarpcallTuningNotKept": judge.Rule(5, 180),
         "WarpcallRestarts": judge.Rule(5, 180), "WarpcallFileNotRead": judge.Rule(5, 9), "WarpcallAbsent": judge.Rule(11, 0)}
CUT = "UNKNOWN: Stream removed (after 0.1 s)"
SECONDS, TELL = 600, judge.TELL_SECONDS


def report(**found):
    return {"ok": {"a": 1000}, "late": [], "failed": [], "wrong": [], "stuck": []} | found


def run(firing=None, down=(), faults=(), **more):
    """`firing`: seconds by (alert, server); the alert WarpcallAbsent is of a job. `down`: seconds in which i1 was."""
    alerts = []
    for (alert, name), moments in (firing or {}).items():
        server = SERVERS.get(name, types.SimpleNamespace(instance=name, job="other"))
        labels = {"alertname": alert, "job": server.job}
        if alert != "WarpcallAbsent":
            labels["instance"] = server.instance
        alerts.append({"metric": labels, "values": [[moment, 1] for moment in moments]})
    up = [{"metric": {"instance": server.instance},
           "values": [[moment, int(server is not FIRST or moment not in down)] for moment in range(SECONDS)]}
          for server in SERVERS.values()]
    api = types.SimpleNamespace(get=lambda path, query, **_: {"result": alerts if "ALERTS" in query else up})
    values = {"failure": None, "reports": {}, "samples": []} | more
    return judge.Seen(faults=list(faults), api=api, span=(0, SECONDS), servers=list(SERVERS.values()), rules=RULES,
                      **values)


def samples(grown_mib):
    return [judge.Sample((1, 99), second, 80 + second % 5 + grown_mib * second / 100, 20) for second in range(100)]


class JudgeTest(unittest.TestCase):
    def passes(self, check, **seen):
        check(run(**seen))

    def fails(self, text, check, **seen):
        with self.assertRaisesRegex(Failure, text):
            check(run(**seen))

    def test_failures(self):
        check, cut = judge.check_no_call_failed, [Fault("cut", FIRST, 1, 2)]
        self.passes(check, reports={"python": report()})
        self.fails("python", check, reports={"python": report(failed=[[1, "a", "UNAVAILABLE: x"]])})
        self.fails("during cut", check, faults=cut, reports={"python": report(failed=[[1, "a", CUT]])})
        self.fails("still waits", check, reports={"python": report(stuck=["a"])})
        load = judge.of_load("load through haproxy", {"ok": 9, "retries": 0, "statuses": {
            "OK": {"count": 9}, "UNKNOWN": {"count": 3, "message": "Stream removed"}}})
        self.fails("3 times UNKNOWN", check, faults=cut, reports={"load through haproxy": load})

    def test_answers_of_load_that_are_wrong(self):
        load = judge.of_load("load in turns", {"ok": 9, "retries": 0, "statuses": {
            "DATA_LOSS": {"count": 1, "message": "identity"}}})
        self.fails("DATA_LOSS", judge.check_no_answer_is_wrong, reports={"load in turns": load})

    def test_callers_that_stood_still(self):
        self.passes(judge.check_all_called, reports={"python": report(ok={"a": 9})})
        self.fails("had 8 answers", judge.check_all_called, reports={"python": report(ok={"a": 8})})

    def test_late_calls(self):
        check, hang = judge.check_late_calls_are_those_of_servers_that_hang, [Fault("hang for long", FIRST, 100, 109)]
        self.passes(check, faults=hang, reports={"hasty": report(late=[[103, "a", "x"]] * 14)})
        self.passes(check, faults=hang, reports={"hasty": report(late=[[50, "a", "x"]] * 10)})  # one of a hundred
        self.fails("without a server", check, faults=hang, reports={"hasty": report(late=[[50, "a", "x"]] * 11)})

    def test_memory(self):
        self.passes(judge.check_memory_stays, samples=samples(0))
        self.fails("grew by 50.0", judge.check_memory_stays, samples=samples(150))
        self.passes(judge.check_memory_never_exceeds_what_is_held, samples=[judge.Sample((1, 99), 0, 230, 20)])
        self.fails("more than 233", judge.check_memory_never_exceeds_what_is_held,
                   samples=[judge.Sample((1, 99), 0, 240, 20)])

    def test_faults_that_are_not_told(self):
        check, full = judge.check_faults_are_told, [Fault("full disk", FIRST, 100, 104)]
        name = "WarpcallTuningNotKept"
        self.passes(check, faults=full, firing={(name, "i1"): [104 + TELL, 200]})
        self.fails("did not fire: .*full disk", check, faults=full, firing={(name, "i1"): [99, 105 + TELL]})
        self.fails("did not fire", check, faults=full, firing={(name, "i2"): [103]})
        self.fails("did not fire", check, faults=full, firing={("WarpcallDown", "i1"): [103]})

    def test_alerts_without_a_fault(self):
        check, full = judge.check_what_is_told_are_faults, [Fault("full disk", FIRST, 100, 104)]
        name = "WarpcallTuningNotKept"
        self.passes(check, faults=full, firing={(name, "i1"): [100, 284 + TELL]})
        self.fails(f"fires for i1, 1: {285 + TELL} s:  at no fault", check, faults=full,
                   firing={(name, "i1"): [103, 285 + TELL]})
        self.fails("fires for i1", check, faults=full, firing={(name, "i1"): [99, 103]})
        self.fails("fires for i2", check, faults=full, firing={(name, "i2"): [103]})
        self.fails("WarpcallQueueOld fires for i1", check, faults=full, firing={("WarpcallQueueOld", "i1"): [103]})

    def test_alerts_that_a_fault_may_end_in(self):
        damaged, firing = [Fault("damaged file", FIRST, 100, 104)], {("WarpcallFileNotRead", "i1"): [103]}
        self.passes(judge.check_faults_are_told, faults=damaged)
        self.passes(judge.check_what_is_told_are_faults, faults=damaged, firing=firing)
        self.fails("fires for i1", judge.check_what_is_told_are_faults, firing=firing)

    def test_alerts_of_a_job_are_of_the_server_in_it(self):
        absence, firing = [Fault("absence", APART, 100, 120)], {("WarpcallAbsent", "guarded"): [110, 119]}
        self.passes(judge.check_faults_are_told, faults=absence, firing=firing)
        self.passes(judge.check_what_is_told_are_faults, faults=absence, firing=firing)
        self.passes(judge.check_all_that_fires_is_of_a_server, faults=absence, firing=firing)
        self.fails("fires for guarded", judge.check_what_is_told_are_faults, firing=firing)
        self.fails("nobody's", judge.check_all_that_fires_is_of_a_server, firing={("WarpcallSlow", "i9"): [5]})

    def test_alerts_of_what_is_down(self):
        check = judge.check_only_what_is_down_is_told_to_be
        self.passes(check, down=range(102, 110), firing={("WarpcallDown", "i1"): [107, 108, 109, 117]})
        self.fails("up since 8 s", check, down=range(102, 110), firing={("WarpcallDown", "i1"): [118]})
        self.fails("i2, which was up", check, firing={("WarpcallDown", "i2"): [107, 108]})

    def test_alerts_of_restarts(self):
        check, name = judge.check_only_what_restarts_is_told_to, "WarpcallRestarts"
        self.passes(check, firing={(name, "i2"): [50, 190 + TELL]})
        self.fails("restarted 4 times", check, firing={(name, "i1"): [50]})
        self.fails("restarted 4 times", check, firing={(name, "i2"): [191 + TELL]})

    def test_times_of_an_alert_are_those_of_what_it_compares(self):
        rules = {
            "rules.yml": [{"record": "warpcall:share", "expr": "rate(errors[30000ms])"},
                          {"record": "warpcall:sum", "expr": "increase(requests[5000ms])"}],
            "alerts.yml": [{"alert": "A", "for": "2000ms", "expr": "warpcall:share > 0.1\n"
                            "and warpcall:share > 2 * 3\n* warpcall:sum\n"},
                           {"alert": "B", "expr": "warpcall:share > 0.1\nand warpcall:sum > 10\n"}]}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, group in rules.items():
                (folder / file).write_text(yaml.safe_dump({"groups": [{"rules": group}]}))
            self.assertEqual(judge.read_rules(folder), {"A": judge.Rule(32 + TELL, 30),
                                                        "B": judge.Rule(30 + TELL, 5)})

    def test_each_alert_has_a_fault(self):
        """But those of GPUs."""
        text = pathlib.Path(deployed_folder(), "prometheus", "alerts.yml").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"- alert: (\w+)", text)), set().union(*ALERTS.values()) | GPU_ALERTS)

    def test_a_server_that_does_not_get_well(self):
        self.fails("waited", judge.check_servers_got_over_each_fault, faults=[Fault("kill", FIRST, 1)],
                   failure=Failure("waited 30 s"))

    def test_one_wrong_element(self):
        for wanted in chaos_client.problems("python", 7):
            self.assertIsNone(wanted.check(wanted.expected.copy()), wanted.kernel)
            answer = wanted.expected.copy()
            answer.flat[-1] += np.float32(1e-4)
            self.assertRegex(wanted.check(answer), "1 elements are wrong")
            self.assertRegex(wanted.check(answer.astype(np.float64)), "float64")
            self.assertRegex(wanted.check(answer[None]), "expected float32 of")
        answer = np.ones(4, np.float32)
        exact = chaos_client.Problem("identity", [answer], answer, exact=True)
        self.assertIsNotNone(exact.check(np.nextafter(answer, np.float32(2))))


if __name__ == "__main__":
    unittest.main()
