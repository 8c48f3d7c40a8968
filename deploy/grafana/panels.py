"""The panels of the dashboard: a table of rows of panels, which dashboard.py lays out.

A description says what the panel shows and what to do when it looks bad; `absent` stands in the panel
when there is nothing to show, and says why. Units are Grafana's.

The server shows its counters for every kernel and implementation from its start, so that most are zero: an
expression leaves out what never ran (`> 0`, and `>= 0` where it would be NaN), and legends name what did.
Histograms and rare codes appear with their first observation, which rates miss: where that matters, `increase`
below counts it.
"""

import dataclasses

# These labels tell deployments apart, as in rules.yml. Without namespaces, all of them matches none.
DEPLOYMENT = 'job=~"$job", namespace=~"$namespace"'
SERVER = f'{DEPLOYMENT}, instance=~"$instance"'
DEVICE = f'{SERVER}, device=~"$device"'
KERNEL = f'{SERVER}, kernel=~"$kernel"'
ROW = f'{KERNEL}, implementation=~"$implementation"'
# By kernel and implementation that ran: a request that was refused has no implementation.
RAN = f'{ROW}, implementation!=""'
RUN = f'{ROW}, device=~"$device"'
BUILD = "and on (job, namespace, instance) warpcall_build_info"
ROW_LEGEND = "{{kernel}} {{implementation}}"
RUN_LEGEND = "{{kernel}} {{implementation}} on {{device}} of {{instance}}"
DEVICE_LEGEND = "{{device}} of {{instance}}"

# (name, label, query). All of `kernel` and `implementation` includes "", which requests have that
# were refused before these were known.
VARIABLES = [
    ("job", "job", "label_values(warpcall_build_info, job)"),
    ("namespace", "namespace", 'label_values(warpcall_build_info{job=~"$job"}, namespace)'),
    ("instance", "server", f"label_values(warpcall_build_info{{{DEPLOYMENT}}}, instance)"),
    ("device", "device", f"label_values(warpcall_queue_depth{{{SERVER}}}, device)"),
    ("kernel", "kernel", f'label_values(warpcall_requests_total{{{SERVER}, kernel!=""}}, kernel)'),
    ("implementation", "implementation",
     f'label_values(warpcall_requests_total{{{KERNEL}, implementation!=""}}, implementation)'),
]

IDLE = "no request ran in this time"
NO_SERVER = "Prometheus sees no server"
NO_GPU = "no GPU on this server"
NO_READING = f"{NO_GPU}, or its driver gives no such reading"
NOTHING_COMPILED = f"nothing was compiled: {NO_GPU}, or no request needed it"
EVERY_ROW = "every implementation runs on every server"
NO_INSPECTION = "no Benchmark, Profile or Describe in this time"


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: list  # (expression, legend)
    description: str
    absent: str
    kind: str = "timeseries"  # or heatmap, stat, table
    width: int = 8  # of 24 columns
    height: int = 8
    most: float | None = None  # of the axis
    log: bool = False
    stacked: bool = False
    steps: tuple = ()  # of a stat: (from which value on, colour)


def rate(metric, selector, labels):
    by = f"sum by ({', '.join(labels)}) " if labels else "sum"
    return f"{by}(rate({metric}{{{selector}}}[$__rate_interval]))"


def quantile(share, metric, selector, labels):
    return f"histogram_quantile({share}, {rate(metric + '_bucket', selector, [*labels, 'le'])})"


def latency(share, selector, labels):
    return quantile(share, "warpcall_request_duration_seconds", selector, labels) + " >= 0"


def per_kernel_second(metric):
    labels = ["job", "namespace", "instance", "device", "kernel", "implementation"]
    seconds = increase("warpcall_kernel_duration_seconds_sum", RUN, labels)
    return f"({increase(metric, RUN, labels)}) / ({seconds}) > 0"


def increase(metric, selector, labels):
    """Returns the increase of a counter whose series appears with its first event. PromQL's increase() misses a
    series' first value, so that value counts while it is younger than the interval."""
    series = f"{metric}{{{selector}}}"
    return (f"sum by ({', '.join(labels)}) ({series} unless {series} offset $__rate_interval "
            f"or increase({series}[$__rate_interval])) > 0")


def named(expression):
    """Fills in the labels of refused requests, which have no kernel or implementation."""
    for label, word in [("kernel", "any kernel"), ("implementation", "refused")]:
        expression = f'label_replace({expression}, "{label}", "{word}", "{label}", "")'
    return expression


def number(title, unit, expression, description, **more):
    """One of the numbers at the top."""
    return Panel(title, unit, [(expression, title)], description, kind="stat", width=3, height=4,
                 **({"absent": IDLE} | more))


OVERVIEW = [
    number("Answers", "reqps", rate("warpcall_requests_total", SERVER, []),
           "Requests answered by all chosen servers together, refusals included.", absent=NO_SERVER),
    number("Errors", "percentunit", f"max(warpcall:request_errors:ratio_rate5m{{{DEPLOYMENT}}})",
           "Share of requests that failed by the server's fault, over five minutes, in the "
           "deployment where it is largest. The objective allows 0.1 %: see Error budget burn.",
           steps=((0.001, "orange"), (0.0144, "red"))),
    number("Refused", "percentunit", f"max(warpcall:requests_refused:ratio_rate5m{{{SERVER}}})",
           "Share of requests refused for lack of room, over five minutes, of the server where it is "
           "largest. Over 5 % for ten minutes alerts, over 25 % for two: see Refusals by reason.",
           steps=((0.01, "orange"), (0.05, "red"))),
    number("99 % within", "s", latency(0.99, SERVER, []),
           "99th percentile of the time from receipt to answer, of all requests: see Latency."),
    number("Waiting", "short", f"sum(warpcall_queue_depth{{{DEVICE}}})",
           "Requests admitted and not yet started, on all devices: see Queues.", absent=NO_SERVER),
    number("Busiest device", "percentunit",
           f"max(rate(warpcall_device_busy_seconds_total{{{DEVICE}}}[$__rate_interval]))",
           "Share of the time in which a kernel or copy ran, on the device where it is largest.",
           absent=NO_SERVER),
    number("Devices healthy", "percentunit", f"avg(warpcall_device_healthy{{{DEVICE}}})",
           "Share of the chosen servers' devices. Under 100 %: see Device healthy and the log.",
           absent=NO_SERVER, steps=((0, "red"), (1, "green"))),
    number("Last start", "dateTimeFromNow",
           f"max(process_start_time_seconds{{{SERVER}}} {BUILD}) * 1000",
           "Start of the newest server. Lines in all panels mark starts within the time shown; "
           "counts from before a start are gone.", absent=NO_SERVER),
    Panel("Alerts", "short", [('ALERTS{alertname=~"Warpcall.*"}', "{{alertname}} {{alertstate}}")],
          "Prometheus alerts that are pending or firing; http://127.0.0.1:9090/alerts of compose "
          "says what to do about each.",
          "no alert is pending or firing", kind="table"),
    Panel("Latency of all requests", "s",
          [(latency(share, SERVER, []), name) for share, name in
           [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %")]],
          "Time from receipt to answer inside the server, refusals included. The row Latency has "
          "each kernel.",
          IDLE, log=True),
    Panel("Devices' time by kernel", "percentunit",
          [(rate("warpcall_kernel_duration_seconds_sum", RUN, ["kernel"]) + " > 0", "{{kernel}}")],
          "Lane-seconds per second spent in kernels, over all devices. The rows below have each "
          "implementation.",
          IDLE, stacked=True),
]

REQUESTS = [
    Panel("Requests by kernel and implementation", "reqps",
          [(named(rate("warpcall_requests_total", ROW, ["kernel", "implementation"])) + " > 0",
            ROW_LEGEND)],
          "Requests answered, whatever the result; 'any kernel' stands for those refused before "
          "the kernel was known. A fall without a fall in demand: look at the queue, then at the "
          "device.",
          IDLE, stacked=True),
    Panel("Requests by server", "reqps",
          [(rate("warpcall_requests_total", ROW, ["instance"]) + " > 0", "{{instance}}")],
          "Requests that each server answered, whatever the answer. Far from even: clients keep to one "
          "connection, or a front sends by load; a server without any is not among the addresses "
          "that clients resolve, or not ready.",
          IDLE),
    Panel("Requests by code", "reqps",
          [(rate("warpcall_requests_total", ROW, ["code"]) + " > 0", "{{code}}")],
          "INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED: the clients' requests are wrong, and the "
          "errors say why. RESOURCE_EXHAUSTED: see Refusals. INTERNAL and UNAVAILABLE are the "
          "server's faults: its log has the reasons. The first answer with a code other than these "
          "two and OK is counted, but not drawn.",
          IDLE, stacked=True),
    Panel("Refusals by reason", "reqps",
          [(rate("warpcall_rejected_total", SERVER, ["reason"]) + " > 0", "{{reason}}")],
          "Refused before a device worked for it. queue_*, staging_bytes and device_memory: the "
          "server is full, so send less, add devices, or raise the limit named. deadline*: "
          "clients give too little time. draining and device_lost: the server goes, or its device "
          "went.",
          "nothing was refused in this time"),
    Panel("Calls kept out", "reqps",
          [(rate("warpcall_auth_refusals_total", SERVER, ["instance", "reason"]) + " > 0",
            "{{reason}} at {{instance}}")],
          "Calls refused because of credentials or policies. no_token, wrong_token, certificate: a "
          "caller with old or no credentials, or an intruder. Other reasons: the policy file "
          "forbids the call; the log names the principal.",
          "no call was refused in this time"),
    Panel("Choices of auto", "short",
          [(increase("warpcall_auto_choices_total", RUN, ["kernel", "implementation", "device", "instance", "why"]),
            RUN_LEGEND + ", {{why}}")],
          "Implementations that the server chose in an interval, for requests that named none. tuned: as "
          "Tune measured; order: the first that fits. reference, which is slow: tune that class, or find "
          "out why nothing else takes it.",
          "no request left the choice to the server"),
    Panel("Error budget burn", "short",
          [(f"max(warpcall:request_errors:ratio_rate{window}{{{DEPLOYMENT}}}) / 0.001", name)
           for window, name in [("5m", "5 minutes"), ("1h", "1 hour"), ("6h", "6 hours")]],
          "Rate at which the budget of 0.1 % server errors is spent, 1 being an even spend over 30 "
          "days, in the deployment with the highest rate. Over 14.4 in the hour, or over 6 in six "
          "hours, an alert pages: see Requests by code, then the server's log.",
          IDLE),
    Panel("Request durations", "s",
          [(f"sum by (le) (increase(warpcall_request_duration_seconds_bucket{{{ROW}}}"
            "[$__rate_interval]))", "{{le}}")],
          "From receipt to answer, refusals included; each bucket is twice the one below. Two "
          "bands are two kinds of requests; a band that splits under load is a queue: narrow it "
          "down with the variables.",
          IDLE, kind="heatmap", width=16),
]

LATENCY = [
    Panel(f"Latency, {name}", "s", [(latency(share, RAN, ["kernel", "implementation"]), ROW_LEGEND)],
          "From receipt to answer inside the server, of what ran, right to within a factor of two "
          "(the buckets). "
          + advice, IDLE, log=True)
    for share, name, advice in [
        (0.5, "median", "A step up without a new kind of request: compare the phases below."),
        (0.9, "90th percentile", "Far above the median: requests of mixed sizes, or a queue."),
        (0.99, "99th percentile",
         "Far above the 90th: bursts (queue), slow first requests of a new shape (library rows are "
         "timed then), or a noisy neighbour."),
    ]
]

PHASES = [
    Panel("Mean time by phase", "s",
          [(rate("warpcall_phase_duration_seconds_sum", KERNEL, ["phase"]) + " / ("
            + rate("warpcall_phase_duration_seconds_count", KERNEL, ["phase"]) + " > 0)",
            "{{phase}}")],
          "Time of the requests that ran, by phase. queue grows: more work than the device can do. "
          "copy_in: large inputs, or the host's memory is busy. h2d and d2h: the link to the GPU. "
          "kernel: see the row below.",
          IDLE, width=6, stacked=True),
    Panel("99th percentile by phase", "s",
          [(quantile(0.99, "warpcall_phase_duration_seconds", KERNEL, ["phase"]) + " >= 0",
            "{{phase}}")],
          "The phase that makes the tail of the latency; the variable kernel tells kernels apart. "
          "The remedies are those for the means.",
          IDLE, width=6, log=True),
] + [
    Panel(f"Device time of kernels, {name}", "s",
          [(quantile(share, "warpcall_kernel_duration_seconds", RUN,
                     ["instance", "kernel", "implementation", "data_type", "device"]) + " >= 0",
            RUN_LEGEND + ", {{data_type}}")],
          "The kernel alone, without queue and copies. " + advice, IDLE, width=6, log=True)
    for share, name, advice in [
        (0.5, "median",
         "Slower for the same sizes: clocks (see Power and Temperature), another program on the "
         "device, or another implementation chosen."),
        (0.99, "99th percentile",
         "Far above the median: requests of mixed sizes, or a device that is shared."),
    ]
]


def of_ceiling(comparison):
    """Where the noise of the ceiling compares so with what it may be."""
    return (f"warpcall:kernel_of_bandwidth_ceiling:ratio_rate5m{{{RUN}}} > 0 and on (job, namespace, instance, device) "
            f"warpcall_device_bandwidth_ceiling_noise_ratio {comparison} 0.1")


KERNELS = [
    Panel("Achieved bandwidth", "Bps",
          [(per_kernel_second("warpcall_kernel_bytes_total"), RUN_LEGEND)],
          "Least bytes that the kernels must move over the time they took. Small requests are "
          "bound by launches, matmul by arithmetic; for the others compare with the ceiling.",
          IDLE),
    Panel("Achieved FLOP/s", "flops",
          [(per_kernel_second("warpcall_kernel_flops_total"), RUN_LEGEND)],
          "Operations by the kernel's definition over the time it took; identity has none. For "
          "matmul and linear, compare implementations on the same shapes with `warpcall bench`.",
          IDLE),
    Panel("Achieved against ceiling", "percentunit",
          [(of_ceiling("<="), RUN_LEGEND), (of_ceiling(">"), RUN_LEGEND + " (ceiling uncertain)")],
          "Achieved bandwidth over what a copy reached on the same device; absent until that is "
          "measured. Large elementwise requests and softmax reach 0.9: lower means small "
          "requests, a row meant for comparison (manual, reference), or a device that is shared. "
          "The ceiling is uncertain until two readings agree within 10 %: other work used the "
          "memory, and the true ratio is lower.",
          "no request ran in this time, or the ceiling is not measured yet: a server measures it "
          "when it has been quiet for two seconds"),
]

QUEUES = [
    Panel("Requests waiting", "short",
          [(f"warpcall_queue_depth{{{DEVICE}}}", DEVICE_LEGEND)],
          "Admitted and not yet started. Steadily above zero: as much work as the device does, or "
          "more. At --queue_limit requests are refused.", NO_SERVER),
    Panel("Age of the oldest waiting request", "s",
          [(f"warpcall_queue_oldest_age_seconds{{{DEVICE}}}", DEVICE_LEGEND)],
          "Over 5 s for 2 minutes alerts. The device busy: too much work for it. Not busy: it "
          "hangs; restart the server.", NO_SERVER),
    Panel("Bytes waiting", "bytes",
          [(f"warpcall_queue_bytes{{{DEVICE}}}", DEVICE_LEGEND)],
          "Tensor bytes of waiting requests, in the host's memory. At --queue_mib requests are "
          "refused.", NO_SERVER),
    Panel("Device busy", "percentunit",
          [(f"rate(warpcall_device_busy_seconds_total{{{DEVICE}}}[$__rate_interval])",
            DEVICE_LEGEND)],
          "Share of the time in which a kernel or copy ran. Near 1 with a queue: add devices. Low "
          "with a queue: requests wait for staging, or for the host's copies.", NO_SERVER, width=12,
          most=1),
    Panel("Device healthy", "short",
          [(f"warpcall_device_healthy{{{DEVICE}}}", DEVICE_LEGEND)],
          "0: its worker restarts or, if it lasts longer than seconds, the device is lost until "
          "the server restarts; the log has the reason.", NO_SERVER, width=12, most=1),
]

MEMORY = [
    Panel("Staging", "bytes",
          [(f"warpcall_staging_bytes{{{DEVICE}}}", DEVICE_LEGEND + " {{state}}")],
          "Memory for inputs and outputs of running requests and for answers not yet sent. Near "
          "the total: requests wait or are refused; raise --staging_mib, or find clients that do "
          "not read their answers.", NO_SERVER),
    Panel("Device memory", "bytes",
          [(f"warpcall_device_memory_bytes{{{DEVICE}}} > 0", DEVICE_LEGEND + " {{state}}")],
          "used and reserved are the server's. Used that grows without larger requests is a leak: "
          "report it. Near the total: serve smaller requests, or use fewer lanes.", NO_SERVER),
    Panel("Host copies", "Bps",
          [(rate("warpcall_host_copy_bytes_total", SERVER, ["where"]) + " > 0", "{{where}}")],
          "Tensor bytes that the host copied. copy_in is the inputs' rate; copy_out never shows, "
          "because answers are sent in place. Anything else is a defect.", IDLE),
]

GPU = [
    Panel("Multiprocessors active, and occupancy", "percentunit",
          [(f"warpcall_gpu_sm_active_ratio{{{DEVICE}}}", DEVICE_LEGEND + " active"),
           (f"warpcall_gpu_sm_occupancy_ratio{{{DEVICE}}}", DEVICE_LEGEND + " occupancy")],
          "Activity of the whole GPU, other programs included. Active while this server is idle: "
          "somebody else uses it.", NO_READING, most=1),
    Panel("Memory and tensor units active", "percentunit",
          [(f"warpcall_gpu_dram_bandwidth_ratio{{{DEVICE}}}", DEVICE_LEGEND + " DRAM"),
           (f"warpcall_gpu_tensor_active_ratio{{{DEVICE}}}", DEVICE_LEGEND + " tensor")],
          "Units that can limit the GPU. Both low while it is busy: small requests, or waiting for "
          "the link.",
          NO_READING, most=1),
    Panel("Power", "watt",
          [(f"warpcall_gpu_power_watts{{{DEVICE}}}", DEVICE_LEGEND)],
          "At the GPU's limit its clocks fall and kernels slow down: raise the limit, or accept "
          "it.", NO_READING),
    Panel("Temperature", "celsius",
          [(f"warpcall_gpu_temperature_celsius{{{DEVICE}}}", DEVICE_LEGEND)],
          "Above about 85 °C the GPU lowers its clocks, and kernels slow down: look at fans and "
          "air flow.", NO_READING),
    Panel("Errors of GPU and CUDA", "short",
          [(increase("warpcall_gpu_xid_errors_total", DEVICE, ["instance", "device", "xid"]),
            DEVICE_LEGEND + " Xid {{xid}}"),
           (increase("warpcall_cuda_errors_total", SERVER, ["instance", "code"]),
            "{{code}} of {{instance}}")],
          "Errors that the driver reported. NVIDIA's table of Xid errors says whether a program or the "
          "hardware is at fault (48, 63, 64, 74, 79, 94, 95: the hardware); a CUDA error that is "
          "not cudaErrorMemoryAllocation loses the device.",
          f"no errors, or {NO_GPU}"),
    Panel("Theoretical occupancy", "percentunit",
          [(f"warpcall_kernel_occupancy_ratio{{{RUN}}}", RUN_LEGEND + " {{kind}}")],
          "Resident warps over the most that fit, of the last launch. Low is no fault by itself "
          "(matmul trades it for registers); read it with the bandwidth.", NO_GPU, most=1),
    Panel("Waves", "short",
          [(f"warpcall_kernel_waves{{{RUN}}}", RUN_LEGEND)],
          "Rounds in which the last launch's blocks filled the GPU. Below 1 the GPU is not full: "
          "larger requests use it better.", NO_GPU, log=True),
    Panel("Wave efficiency", "percentunit",
          [(f"warpcall_kernel_wave_efficiency_ratio{{{RUN}}}", RUN_LEGEND)],
          "Waves over waves rounded up. Low with few waves: much of the GPU idles in the last "
          "one; other sizes, or another implementation, fit better.", NO_GPU, most=1),
]

COMPILING = [
    Panel("Kernels compiled", "short",
          [(increase("warpcall_compile_seconds_count", SERVER, ["instance"]), "{{instance}}")],
          "Compilations in an interval. Each delays its request by 25 ms or more. Steadily above "
          "zero: clients keep sending new expressions or shapes, or more of them than the caches "
          "hold.",
          NOTHING_COMPILED, width=6),
    Panel("Time to compile", "s",
          [(quantile(share, "warpcall_compile_seconds", SERVER, []) + " >= 0", name)
           for share, name in [(0.5, "median"), (0.99, "99 %")]],
          "Time for one kernel, without waiting for a thread. Over 0.1 s: the host's processors "
          "are busy with other work.", NOTHING_COMPILED, width=6, log=True),
    Panel("Found in caches", "percentunit",
          [("{0} / ({0} + {1} > 0)".format(
              rate("warpcall_compile_cache_hits_total", SERVER, ["cache"]),
              rate("warpcall_compile_cache_misses_total", SERVER, ["cache"])), "{{cache}}")],
          "Share of kernels found in a cache; disk is searched after memory. Low after a restart, "
          "with --compile_cache: its folder is not kept, or NVRTC was changed.", NOTHING_COMPILED, width=6, most=1),
    Panel("Caches", "bytes",
          [(f"warpcall_compile_cache_bytes{{{SERVER}}} > 0", "{{cache}} of {{instance}}")],
          "Memory holds 32 MiB a GPU and what is in use, disk 256 MiB; then the oldest goes. Disk "
          "at its limit while kernels are compiled: more are in use than it holds.",
          NOTHING_COMPILED, width=6),
]

INSPECTIONS = [
    Panel("Inspections", "short",
          [(increase("warpcall_inspections_total", SERVER, ["method", "code"]), "{{method}} {{code}}")],
          "Benchmark, Profile and Describe calls that ended. They share devices with requests: "
          "while many come, latencies rise; --inspect=off refuses them.",
          NO_INSPECTION),
    Panel("Processors of inspections", "short",
          [(rate("warpcall_inspection_cpu_seconds_total", f"{SERVER}, kernel=~\"$kernel\"",
                 ["method", "kernel"]) + " > 0", "{{method}} {{kernel}}")],
          "Cores that their processes use, beside those of the server. A steady load here is "
          "somebody's benchmark: the log names its kernel and shape.",
          NO_INSPECTION),
    Panel("Device time of inspections", "percentunit",
          [(rate("warpcall_inspection_device_seconds_total", f"{SERVER}, kernel=~\"$kernel\"",
                 ["method", "kernel"]) + " > 0", "{{method}} {{kernel}}")],
          "Device-seconds per second of Benchmark and Profile, counted when they are done. "
          "Requests wait meanwhile: compare with Age of the oldest waiting request.",
          NO_INSPECTION),
]

# Faults that a server survives: restarts, unread files, implementations that it lacks.
FAULTS = [
    Panel("Starts of servers", "short",
          [(f"changes(process_start_time_seconds{{{SERVER}}}[1h]) {BUILD}", "{{instance}}")],
          "Starts in the hour before. Each loses the requests that waited on its server. If there "
          "are more than you ordered, the log's last lines and the exit status have the reason.",
          NO_SERVER, width=6),
    Panel("Files not read again", "short",
          [(increase("warpcall_reload_failures_total", SERVER, ["instance", "flag"]),
            "--{{flag}} of {{instance}}")],
          "Failed reloads in an interval. The previous version stays in force; the log has the "
          "mistake.",
          "every file that changed could be read", width=6),
    Panel("Unavailable implementations", "short",
          [(f"sum by (instance, device_kind, reason) (warpcall_rows_unavailable{{{ROW}}}) > 0",
            "{{device_kind}}: {{reason}} at {{instance}}")],
          "driver: there is no such GPU. library: a vendor's library is missing. self_test and compile: "
          "the implementation gives wrong results or does not build here, and nobody gets it; the table "
          "beside this names it.",
          EVERY_ROW, width=6),
    Panel("Implementations that failed here", "short",
          [(f'warpcall_rows_unavailable{{{ROW}, reason=~"self_test|compile"}} == 1',
            "{{kernel}} {{implementation}}:{{variant}} at {{instance}}")],
          "Each failed its self-test, or did not compile, on a machine that has its device and its "
          "libraries. The log's warning says how; on one of several servers alike, suspect its GPU.",
          EVERY_ROW, kind="table", width=6),
]

PROCESS = [
    Panel("Resident memory", "bytes",
          [(f"process_resident_memory_bytes{{{SERVER}}} {BUILD}", "{{instance}}")],
          "Grows to staging, queue and library caches, then stays. Growth for hours under the "
          "same load is a leak: report it with the load.", NO_SERVER),
    Panel("Processors used", "short",
          [(f"rate(process_cpu_seconds_total{{{SERVER}}}[$__rate_interval]) {BUILD}", "{{instance}}")],
          "Cores. Near the number of cores while the GPU idles: the host's copies or the network "
          "limit the rate.", NO_SERVER),
    Panel("Open descriptors", "short",
          [(f"process_open_fds{{{SERVER}}} {BUILD}", "{{instance}} open"),
           (f"process_max_fds{{{SERVER}}} {BUILD}", "{{instance}} limit")],
          "A connection takes one. Near the limit new clients are not accepted: raise the hard "
          "limit, or find clients that leave connections open.", NO_SERVER, log=True),
]

# Where a server began anew: what it counts did, too.
RESTARTS = (f"changes(process_start_time_seconds{{{SERVER}}}[$__rate_interval]) > 0 {BUILD}",
            "{{instance}} was restarted")

ROWS = [
    ("Overview", OVERVIEW),
    ("Requests", REQUESTS),
    ("Latency", LATENCY),
    ("Phases", PHASES),
    ("Kernels and the device's limits", KERNELS),
    ("Queues", QUEUES),
    ("Memory", MEMORY),
    ("Benchmark, Profile and Describe", INSPECTIONS),
    ("Restarts and faults", FAULTS),
    ("Process", PROCESS),
    ("GPUs", GPU),
    ("Kernels compiled at run time", COMPILING),
]
