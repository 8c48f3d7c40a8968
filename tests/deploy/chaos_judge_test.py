#!/usr/bin/env python3
"""What chaos_test.py must not let pass, and what it must, in runs that never were.

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import sys
import types
import unittest

sys.dont_write_bytecode = True

try:
    import chaos_client
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(77)

import chaos_judge as judge  # noqa: E402
from chaos_faults import Fault  # noqa: E402
from processes import Failure  # noqa: E402

FIRST, SECOND = (types.SimpleNamespace(instance=instance, lives=lives) for instance, lives in (("i1", 5), ("i2", 6)))
CUT = "UNKNOWN: Stream removed (after 0.1 s)"
SECONDS = 600


def report(**found):
    return {"ok": {"a": 1000}, "late": [], "failed": [], "wrong": [], "stuck": []} | found


def run(firing=None, down=(), faults=(), **more):
    """`firing`: seconds by (alert, instance); `down`: seconds in which i1 was."""
    alerts = [{"metric": dict(zip(("alertname", "instance"), key)), "values": [[moment, 1] for moment in moments]}
              for key, moments in (firing or {}).items()]
    up = [{"metric": {"instance": replica.instance},
           "values": [[moment, int(replica is not FIRST or moment not in down)] for moment in range(SECONDS)]}
          for replica in (FIRST, SECOND)]
    api = types.SimpleNamespace(get=lambda path, query, **_: {"result": alerts if "ALERTS" in query else up})
    values = {"failure": None, "reports": {}, "samples": []} | more
    return judge.Seen(faults=list(faults), api=api, span=(0, SECONDS), replicas=[FIRST, SECOND], **values)


def samples(grown_mib):
    return [judge.Sample((1, 99), second, 80 + second % 5 + grown_mib * second / 100, 20) for second in range(100)]


class JudgeTest(unittest.TestCase):
    def passes(self, check, **seen):
        check(run(**seen))

    def fails(self, text, check, **seen):
        with self.assertRaisesRegex(Failure, text):
            check(run(**seen))

    def test_failures(self):
        check, cut = judge.check_no_call_failed, [Fault("cut", 0, 1, 2)]
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
        self.fails("had 9 answers", judge.check_all_called, reports={"python": report(ok={"a": 9})})

    def test_late_calls(self):
        check, hang = judge.check_late_calls_are_those_of_servers_that_hang, [Fault("hang for long", 0, 100, 109)]
        self.passes(check, faults=hang, reports={"hasty": report(late=[[103, "a", "x"]] * 14)})
        self.fails("15 calls were late", check, faults=hang, reports={"hasty": report(late=[[103, "a", "x"]] * 15)})
        self.passes(check, faults=hang, reports={"hasty": report(late=[[50, "a", "x"]])})  # one of a thousand
        self.fails("without a server", check, faults=hang, reports={"hasty": report(late=[[50, "a", "x"]] * 2)})

    def test_memory(self):
        self.passes(judge.check_memory_stays, samples=samples(0))
        self.fails("grew by 4", judge.check_memory_stays, samples=samples(80))
        self.passes(judge.check_memory_never_exceeds_what_is_held, samples=[judge.Sample((1, 99), 0, 230, 20)])
        self.fails("more than 233", judge.check_memory_never_exceeds_what_is_held,
                   samples=[judge.Sample((1, 99), 0, 240, 20)])

    def test_alerts_of_what_is_down(self):
        check, hang, down = judge.check_alerts_tell_what_is_down, [Fault("hang for long", 0, 100, 110)], range(102, 110)
        self.passes(check, faults=hang, down=down, firing={("WarpcallDown", "i1"): [107, 108, 109]})
        self.fails("did not fire", check, faults=hang, down=down)
        self.fails("i2, which was up", check, firing={("WarpcallDown", "i2"): [107, 108]})

    def test_alerts_of_restarts(self):
        check, right = judge.check_alerts_tell_restarts, ("WarpcallRestarts", "i2")
        self.passes(check, firing={right: [5]})
        self.fails("does not fire for i2", check)
        self.fails("fires for i1", check, firing={right: [5], ("WarpcallRestarts", "i1"): [5]})

    def test_alerts_of_files(self):
        check, full = judge.check_alerts_tell_files, [Fault("full disk", 0, 100, 104)]
        name = "WarpcallTuningNotKept"
        self.passes(check, faults=full, firing={(name, "i1"): [103, 200]})
        self.fails("did not fire", check, faults=full)
        self.fails("as they should be", check, faults=full, firing={(name, "i1"): [50, 103]})
        self.fails("as they should be", check, faults=full, firing={(name, "i1"): [103], (name, "i2"): [103]})

    def test_alerts_of_files_that_are_well_again(self):
        check, name = judge.check_alerts_tell_files, "WarpcallFileNotRead"
        damaged = [Fault("damaged file", 0, 100, 104), Fault("damaged file", 0, 300, 304)]
        self.passes(check, faults=damaged, firing={(name, "i1"): [124, 289, 324, 489]})
        self.fails("did not fire", check, faults=damaged[:1], firing={(name, "i1"): [125, 130]})
        self.fails("after 290 s", check, faults=damaged[:1], firing={(name, "i1"): [124, 289, 290]})
        self.passes(check, faults=[Fault("full disk", 0, 100, 104)],
                    firing={("WarpcallTuningNotKept", "i1"): [103, 599]})

    def test_other_alerts(self):
        self.fails("WarpcallQueueOld of i1", judge.check_no_other_alert_fires,
                   firing={("WarpcallQueueOld", "i1"): [5]})

    def test_a_server_that_does_not_get_well(self):
        self.fails("waited", judge.check_servers_got_over_each_fault, faults=[Fault("kill", 0, 1)],
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
