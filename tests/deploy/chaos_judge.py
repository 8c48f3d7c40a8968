"""What chaos_test.py holds a run against: answers, failures, memory, alerts."""

import collections
import math

import processes
from processes import Failure

Sample = collections.namedtuple("Sample", "life time resident_mib descriptors")
Seen = collections.namedtuple("Seen", "faults failure reports samples api span replicas")

TOLD = 8
# Of each address, on a machine that is busy with other things; a server that hangs keeps a call for ten seconds.
CALLS_PER_SECOND_MIN = 0.1
HASTY_SECONDS, HASTY_CALLERS = 1.5, 2
# 2 of 26 439 were seen, both callers' at the same moment, on two cores with a load of 18.
LATE_SHARE_MAX = 0.001
# From what Prometheus scraped to what it tells: two scrapes and two evaluations, each once a second.
TELL_SECONDS = 5
OUTAGES = ("kill for long", "hang for long")


def of_load(name, total):
    """`warpcall load`'s report as chaos_client.py words it."""
    found = {"failed": [], "wrong": []}
    for code, status in total["statuses"].items():
        if code != "OK":
            found["wrong" if code == "DATA_LOSS" else "failed"].append(
                [0, name, f"{status['count']} times {code}: {status.get('message')}", status["count"]])
    return found | {"ok": {name: total["ok"]}, "late": [], "stuck": [], "retries": total["retries"]}


def told(entries, faults):
    """The first few, with the fault that there was."""
    def when(moment):
        now = [f"{fault.kind} of {fault.replica}" for fault in faults if fault.begin <= moment <= fault.end + 1]
        return f"during {now[0]}" if now else "at no fault" if moment else ""
    lines = [f"{address}: {text} {when(moment)}" for moment, address, text, *_ in entries[:TOLD]]
    return f"{len(entries)}: " + "; ".join(lines)


def check_servers_got_over_each_fault(seen):
    if seen.failure is not None:
        raise Failure(f"{seen.faults[-1]}: {seen.failure}")


# ---- calls ------------------------------------------------------------------------------------------

def check_no_answer_is_wrong(seen):
    for name, report in seen.reports.items():
        if report["wrong"]:
            raise Failure(f"{name}: wrong answers, {told(report['wrong'], seen.faults)}")


def check_no_call_failed(seen):
    failures = [f"{name}: {told(report['failed'], seen.faults)}"
                for name, report in seen.reports.items() if report["failed"]]
    failures += [f"{name} still waits for an answer of {report['stuck']}"
                 for name, report in seen.reports.items() if report["stuck"]]
    if failures:
        raise Failure("\n  ".join(failures))


def check_all_called(seen):
    least = CALLS_PER_SECOND_MIN * (seen.span[1] - seen.span[0])
    for name, report in seen.reports.items():
        for address, calls in report["ok"].items():
            if calls < least:
                raise Failure(f"{name} had {calls} answers of {address}; expected at least {least:.0f}")


def check_late_calls_are_those_of_servers_that_hang(seen):
    """One that hangs costs a caller what passes of its deadlines meanwhile, and the call before. Otherwise only
    the machine's own pauses may."""
    late = seen.reports["hasty"]["late"]
    others_max = LATE_SHARE_MAX * sum(seen.reports["hasty"]["ok"].values())
    for fault in seen.faults:
        if fault.kind.startswith("hang"):
            during = [entry for entry in late if fault.begin <= entry[0] <= fault.end + HASTY_SECONDS]
            most = HASTY_CALLERS * (math.ceil((fault.end - fault.begin) / HASTY_SECONDS) + 1)
            if len(during) > most:
                raise Failure(f"{len(during)} calls were late while {fault}; expected at most {most}")
            late = [entry for entry in late if entry not in during]
    if len(late) > others_max:
        raise Failure(f"late without a server that hangs: {told(late, seen.faults)}")


# ---- memory -----------------------------------------------------------------------------------------

# By deploy/README.md a server is about 100 MiB, and 64 KiB a connection.
SERVER_MIB, CONNECTION_MIB = 100, 1 / 16
# Two callers of streams of 16 MiB, and twelve of calls of at most 1 MiB, all of which one server may have: as
# received, and in staging as inputs and as outputs.
STREAM_MIB = 16
CALLS_MIB = 2 * STREAM_MIB + 12
IN_MESSAGES, IN_STAGING, IN_ANSWERS = 1, 1, 1
# Until the first calls of each kind have come by, and the threads that they need.
WARM_UP_SECONDS, LIFE_SAMPLES_MIN = 10, 30


def lives(seen):
    """{(server, its process): its samples}, of those that were seen at all."""
    found = collections.defaultdict(list)
    for sample in seen.samples:
        found[sample.life].append(sample)
    return dict(sorted(found.items()))


def check_memory_never_exceeds_what_is_held(seen):
    """README's sum for what the clients have under way: nothing else may be held at any time."""
    for sample in seen.samples:
        most = (SERVER_MIB + sample.descriptors * CONNECTION_MIB
                + CALLS_MIB * (IN_MESSAGES + IN_STAGING + IN_ANSWERS))
        if sample.resident_mib > most:
            raise Failure(f"{sample} holds more than {most:.0f} MiB")


def check_memory_stays(seen):
    """From the first third of a process's life to its last, the least of each: it is what is held in any case.
    What may have come is what is there to be held: descriptors, and what malloc and staging keep of all callers'
    calls, which may have met there but later. (A server that two streams call all the time stands at 98 MiB after
    20 s, one that they share with two others at 74.)"""
    for life, samples in lives(seen).items():
        samples = [sample for sample in samples if sample.time > samples[0].time + WARM_UP_SECONDS]
        if len(samples) < LIFE_SAMPLES_MIN:
            continue
        third = len(samples) // 3
        first, last = (min(part, key=lambda sample: sample.resident_mib)
                       for part in (samples[:third], samples[-third:]))
        grown = last.resident_mib - first.resident_mib
        most = CALLS_MIB + CONNECTION_MIB * max(0, last.descriptors - first.descriptors)
        print(f"        server {life[0]}, process {life[1]}, {len(samples)} s: {first.resident_mib:.0f} MiB, then "
              f"{last.resident_mib:.0f} MiB at least, {max(s.resident_mib for s in samples):.0f} MiB at most")
        if grown > most:
            raise Failure(f"server {life[0]}, process {life[1]}, grew by {grown:.1f} MiB; expected at most {most:.1f}")


# ---- alerts -----------------------------------------------------------------------------------------

def series(seen, expression, *labels):
    """{label values: [(second, value)]}."""
    data = seen.api.get("/api/v1/query_range", query=expression, start=seen.span[0], end=seen.span[1], step=1)
    return {tuple(found["metric"].get(label, "") for label in labels):
            [(moment, float(value)) for moment, value in found["values"]] for found in data["result"]}


class Alerts:
    def __init__(self, seen):
        self.seen = seen
        self.firing = {key: [moment for moment, _ in values] for key, values in series(
            seen, 'ALERTS{alertstate="firing"}', "alertname", "instance").items()}
        self.up = {instance: dict(values) for (instance,), values in series(
            seen, 'up{job="warpcall"}', "instance").items()}

    def of(self, name):
        """{instance: seconds at which it fired}."""
        return {instance: moments for (alert, instance), moments in self.firing.items() if alert == name}

    def instance(self, fault):
        return self.seen.replicas[fault.replica].instance

    def check_told(self, name, fault, wait_seconds=0):
        moments = self.of(name).get(self.instance(fault), [])
        if not any(fault.begin <= moment <= fault.end + wait_seconds + TELL_SECONDS for moment in moments):
            raise Failure(f"{name} did not fire: {fault}")


def check_alerts_tell_what_is_down(seen):
    alerts = Alerts(seen)
    for fault in seen.faults:
        if fault.kind in OUTAGES:
            alerts.check_told("WarpcallDown", fault)
    for instance, moments in alerts.of("WarpcallDown").items():
        for moment in moments:
            before = [alerts.up[instance].get(moment - back, 0) for back in (1, 2)]
            if moment - 1 not in moments and any(before):
                raise Failure(f"WarpcallDown fires for {instance}, which was up 2 s before")


def check_alerts_tell_restarts(seen):
    firing = Alerts(seen).of("WarpcallRestarts")
    for replica in seen.replicas:
        restarts = replica.lives - 1
        if (restarts > 4) != (replica.instance in firing):
            raise Failure(f"WarpcallRestarts {'fires' if replica.instance in firing else 'does not fire'} for "
                          f"{replica.instance}, which was restarted {restarts} times")


# Alerts that tell each fault of a kind, within what they wait for, fire for no other server, and end so many seconds
# after the fault: the window of their expression.
FILES = {"WarpcallFileNotRead": ("damaged file", 15, 180), "WarpcallTuningNotKept": ("full disk", 0, 3600)}


def check_alerts_tell_files(seen):
    alerts = Alerts(seen)
    for name, (kind, wait_seconds, seconds) in FILES.items():
        faults = [fault for fault in seen.faults if fault.kind == kind]
        for fault in faults:
            alerts.check_told(name, fault, wait_seconds)
        for instance, moments in alerts.of(name).items():
            causes = [fault for fault in faults if alerts.instance(fault) == instance]
            for moment in moments:
                if not any(cause.begin <= moment <= cause.end + seconds + TELL_SECONDS for cause in causes):
                    raise Failure(f"{name} fires for {instance}, whose files were as they should be, after "
                                  f"{moment - seen.span[0]:.0f} s")


def check_no_other_alert_fires(seen):
    expected = {"WarpcallDown", "WarpcallRestarts", *FILES}
    others = {f"{alert} of {instance}": len(moments) for (alert, instance), moments in Alerts(seen).firing.items()
              if alert not in expected}
    if others:
        raise Failure(f"they fire, for so many seconds: {others}")


def check_rules_work(seen):
    for rule in seen.api.rules():
        if rule["health"] != "ok":
            raise Failure(f"{rule['name']} is {rule['health']}: {rule.get('lastError')}")


CHECKS = [check_servers_got_over_each_fault, check_no_answer_is_wrong, check_no_call_failed, check_all_called,
          check_late_calls_are_those_of_servers_that_hang, check_memory_never_exceeds_what_is_held,
          check_memory_stays, check_alerts_tell_what_is_down, check_alerts_tell_restarts,
          check_alerts_tell_files, check_no_other_alert_fires, check_rules_work]


def judge(seen):
    """The exit status."""
    for name, report in seen.reports.items():
        print(f"{name}: {sum(report['ok'].values())} right answers, {len(report['late'])} late, "
              f"{len(report['failed'])} failed, {len(report['wrong'])} wrong")
    failures = processes.run_checks(CHECKS, lambda folder, stack: seen)
    return 1 if failures else 0
