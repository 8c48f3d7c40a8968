"""Checks of a run of chaos_test.py: answers, failures, memory, alerts."""

import collections
import re

import processes
import yaml
from chaos_faults import ALERTS, POSSIBLE_ALERTS, is_of
from processes import Failure

Sample = collections.namedtuple("Sample", "life time resident_mib descriptors")
Seen = collections.namedtuple("Seen", "faults failure reports samples api span servers rules")

TOLD = 8
# Each call ends within its deadline of 60 s, however busy the machine is.
CALLS_PER_SECOND_MIN = 1 / 61
HASTY_SECONDS = 4
# Calls that a busy machine may delay by so much: with a deadline of 1.5 s, 1 of 770 was late under a load of 40. A client
# that stands still for 20 s where a server is killed or drains has more.
LATE_SHARE_MAX = 0.01
# A server under load answers within a second, on a machine that is busy with other things in up to two.
SCRAPE_SECONDS = 2
# Delay from a scrape to its alert: two scrapes and two evaluations.
TELL_SECONDS = 4 * SCRAPE_SECONDS + 1
# Restarts may look like WarpcallDown and be WarpcallRestarts: both go by what Prometheus saw.
SEEN_BY_PROMETHEUS = {"WarpcallDown", "WarpcallRestarts"}
RESTARTS_MAX = 4


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
        now = [f"{fault.kind} of {fault.server.name}" for fault in faults if fault.begin <= moment <= fault.end + 1]
        return f"during {now[0]}" if now else "at no fault" if moment else ""
    lines = [f"{address}: {text} {when(moment)}" for moment, address, text, *_ in entries[:TOLD]]
    return f"{len(entries)}: " + "; ".join(lines)


def check_servers_got_over_each_fault(seen):
    if seen.failure is not None:
        raise Failure(f"{seen.faults[-1:]}: {seen.failure}")


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
    least = CALLS_PER_SECOND_MIN * (seen.span[1] - seen.span[0]) - 1
    for name, report in seen.reports.items():
        for address, calls in report["ok"].items():
            if calls < least:
                raise Failure(f"{name} had {calls} answers of {address}; expected at least {least:.0f}")


def check_late_calls_are_those_of_servers_that_hang(seen):
    """Otherwise only the machine's own pauses may delay a call."""
    hangs = [fault for fault in seen.faults if fault.kind.startswith("hang")]
    late = [entry for entry in seen.reports["hasty"]["late"]
            if not any(fault.begin <= entry[0] <= fault.end + HASTY_SECONDS for fault in hangs)]
    if len(late) > LATE_SHARE_MAX * sum(seen.reports["hasty"]["ok"].values()):
        raise Failure(f"late without a server that hangs: {told(late, seen.faults)}")


# ---- memory -----------------------------------------------------------------------------------------

# deploy/README.md: a server takes about 100 MiB, and 64 KiB a connection.
SERVER_MIB, CONNECTION_MIB = 100, 1 / 16
# Two callers of streams of 16 MiB, and twelve of calls of at most 1 MiB. One server may hold all of them: as received,
# and in staging as inputs and as outputs.
STREAM_MIB = 16
CALLS_MIB = 2 * STREAM_MIB + 12
IN_MESSAGES, IN_STAGING, IN_ANSWERS = 1, 1, 1
LIFE_SAMPLES_MIN = 30


def lives(seen):
    """{(server, its process): its samples}, of those that were seen at all."""
    found = collections.defaultdict(list)
    for sample in seen.samples:
        found[sample.life].append(sample)
    return dict(sorted(found.items()))


def check_memory_never_exceeds_what_is_held(seen):
    """README's sum for the clients' calls under way: nothing else may be held at any time."""
    for sample in seen.samples:
        most = (SERVER_MIB + sample.descriptors * CONNECTION_MIB
                + CALLS_MIB * (IN_MESSAGES + IN_STAGING + IN_ANSWERS))
        if sample.resident_mib > most:
            raise Failure(f"{sample} holds more than {most:.0f} MiB")


def check_memory_stays(seen):
    """Compares the minima of the second and the last third of a process's life: the memory that it always holds. The
    first third has the first calls of each kind, and the threads that they need. Memory may grow by the things that can
    be held: descriptors, and what malloc and staging keep of all callers' calls, which may have met only later. (A
    server that two streams call all the time stands at 98 MiB after 20 s, one that they share with two others at
    74.)"""
    for life, samples in lives(seen).items():
        if len(samples) < LIFE_SAMPLES_MIN:
            continue
        third = len(samples) // 3
        first, last = (min(part, key=lambda sample: sample.resident_mib)
                       for part in (samples[third:2 * third], samples[-third:]))
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


RANGE = re.compile(r"\b(rate|increase|changes|avg_over_time)\([^\[\]]*\[(\d+)ms\]")
# A limit that an alert computes: its series neither start nor end the alert.
LIMIT = re.compile(r"> [\d.]+(?:\s+\*.*)+")
# Seconds: an alert fires `tell_seconds` into its fault, and is over `after_seconds` after its end.
Rule = collections.namedtuple("Rule", "tell_seconds after_seconds")


def ranges_of(expression, recorded):
    """[(function, seconds)] in an expression and in the rules whose series it uses."""
    found = [(function, int(ms) / 1000) for function, ms in RANGE.findall(expression)]
    for name in set(re.findall(r"\bwarpcall:[\w:]+", expression)) & set(recorded):
        found += ranges_of(recorded[name], recorded)
    return found


def read_rules(folder):
    """{alert: Rule} for rules whose times are in milliseconds."""
    groups = [group for name in ("rules.yml", "alerts.yml")
              for group in yaml.safe_load((folder / name).read_text(encoding="utf-8"))["groups"]]
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    found = {}
    for rule in (rule for rule in rules if "alert" in rule):
        ranges = ranges_of(LIMIT.sub("", rule["expr"]), recorded)
        rates = [seconds for function, seconds in ranges if function == "rate"]
        # `and`: the shortest range ends it; `or`: the longest.
        ends = max if re.search(r"^or\b", rule["expr"], re.M) else min
        waits = int(rule.get("for", "0ms").removesuffix("ms")) / 1000
        found[rule["alert"]] = Rule(min(rates, default=0) + waits + TELL_SECONDS,
                                    ends((seconds for _, seconds in ranges), default=0))
    return found


class Alerts:
    def __init__(self, seen):
        self.seen = seen
        self.firing = {key: [moment for moment, _ in values] for key, values in series(
            seen, 'ALERTS{alertstate="firing"}', "alertname", "instance", "job", "flag").items()}
        self.up = {instance: dict(values) for (instance,), values in series(seen, "up", "instance").items()}

    def of(self, name, server):
        """Seconds at which it fired for the server, or for the job that it is alone in."""
        return [moment for (alert, instance, job, _), moments in self.firing.items()
                if alert == name and is_of(server, instance, job) for moment in moments]


def check_faults_are_told(seen):
    alerts = Alerts(seen)
    silent = [f"{name} did not fire: {fault}" for fault in seen.faults for name in ALERTS[fault.kind]
              if not any(fault.begin <= moment <= fault.end + TELL_SECONDS
                         for moment in alerts.of(name, fault.server))]
    if silent:
        raise Failure("\n  ".join(silent))


def check_what_is_told_are_faults(seen):
    alerts, failures = Alerts(seen), []
    for server in seen.servers:
        for name in sorted({alert for alert, *_ in alerts.firing} - SEEN_BY_PROMETHEUS):
            causes = [fault for fault in seen.faults if fault.server is server
                      and name in ALERTS[fault.kind] + POSSIBLE_ALERTS.get(fault.kind, [])]
            after = TELL_SECONDS + (seen.rules[name].after_seconds if causes else 0)
            wrong = [(moment, f"{moment - seen.span[0]:.0f} s", "") for moment in alerts.of(name, server)
                     if not any(cause.begin <= moment <= cause.end + after for cause in causes)]
            if wrong:
                failures.append(f"{name} fires for {server.name}, {told(wrong, seen.faults)}")
    if failures:
        raise Failure("\n  ".join(failures))


def check_all_that_fires_is_of_a_server(seen):
    known = {name for server in seen.servers for name in (server.instance, server.job)}
    others = {key for key in Alerts(seen).firing if (key[1] or key[2]) not in known}
    if others:
        raise Failure(f"they fire, and are nobody's: {others}")


def check_only_what_is_down_is_told_to_be(seen):
    """A sample counts from when its scrape began, and the rule sees it when the scrape has ended."""
    alerts, name = Alerts(seen), "WarpcallDown"
    for server in seen.servers:
        for moment in alerts.of(name, server):
            since = moment - seen.rules[name].tell_seconds
            if all(up for second, up in alerts.up[server.instance].items() if since <= second <= moment):
                raise Failure(f"{name} fires for {server.name}, which was up since {moment - since:.0f} s")


def check_only_what_restarts_is_told_to(seen):
    """A server that is apart may restart for other faults, too."""
    alerts, name = Alerts(seen), "WarpcallRestarts"
    for server in seen.servers:
        for moment in alerts.of(name, server):
            since = moment - seen.rules[name].after_seconds - TELL_SECONDS
            restarts = sum(since <= start <= moment for start in server.starts[1:])
            if restarts <= RESTARTS_MAX:
                raise Failure(f"{name} fires for {server.name}, which was restarted {restarts} times")


def check_rules_work(seen):
    for rule in seen.api.rules():
        if rule["health"] != "ok":
            raise Failure(f"{rule['name']} is {rule['health']}: {rule.get('lastError')}")


CHECKS = [check_servers_got_over_each_fault, check_no_answer_is_wrong, check_no_call_failed, check_all_called,
          check_late_calls_are_those_of_servers_that_hang, check_memory_never_exceeds_what_is_held,
          check_memory_stays, check_faults_are_told, check_what_is_told_are_faults,
          check_all_that_fires_is_of_a_server, check_only_what_is_down_is_told_to_be,
          check_only_what_restarts_is_told_to, check_rules_work]


def judge(seen):
    """The exit status."""
    for name, report in seen.reports.items():
        print(f"{name}: {sum(report['ok'].values())} right answers, {len(report['late'])} late, "
              f"{len(report['failed'])} failed, {len(report['wrong'])} wrong")
    failures = processes.run_checks(CHECKS, lambda folder, stack: seen)
    return 1 if failures else 0
