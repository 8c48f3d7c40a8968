"""A GPU's clock, power and energy under a load that lasts: server/inspect/load_meter.h's rule and constants, for peers.

Needs nothing but Python and the driver's libnvidia-ml.so.1.
"""

import collections
import ctypes
import statistics
import time

SETTLE_S_MIN, SETTLE_S_MAX, TIMED_S = 3.0, 10.0, 3.0
LOOK_S, WINDOW_S, SETTLED_MHZ = 0.1, 0.5, 15.0
# A sample, between which the GPU rests while the host works.
SAMPLE_MS = 50.0

# Unknown values are 0.
Reading = collections.namedtuple("Reading", "mhz watts joules")
# The median clock and the mean power while a peer was timed, and the energy of a launch.
Load = collections.namedtuple("Load", "mhz watts mj")


class Nvml:
    """Reads one GPU's conditions. Raises OSError where NVML is missing or does not know the GPU."""

    SM_CLOCK = 1

    def __init__(self, uuid):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        for name, arguments in (("nvmlInit_v2", ()),
                                ("nvmlDeviceGetHandleByUUID", (f"GPU-{uuid}".encode(), ctypes.byref(self.device)))):
            if status := getattr(self.library, name)(*arguments):
                raise OSError(f"{name} returned {status}")

    def read(self):
        return Reading(self.value("nvmlDeviceGetClockInfo", ctypes.c_uint, self.SM_CLOCK),
                       self.value("nvmlDeviceGetPowerUsage", ctypes.c_uint) / 1e3,
                       self.value("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1e3)

    def value(self, name, kind, *arguments):
        value = kind()
        failed = getattr(self.library, name)(self.device, *arguments, ctypes.byref(value))
        return 0 if failed else value.value


class LoadMeter:
    """For each turn: begin; samples and look until is_settled; begin_timed; samples and look until is_timed; end_timed.
    `reader` may be None: every load settles after SETTLE_S_MIN, and the figures stay unknown."""

    def __init__(self, reader, clock=time.monotonic):
        self.reader, self.clock = reader, clock
        self.turn, self.timed, self.begin_at, self.timed_begin = [], [], 0.0, None
        self.joules_begin, self.joules, self.launches, self.knows_energy = 0.0, 0.0, 0, True

    def begin(self):
        self.turn, self.timed_begin, self.begin_at = [], None, self.clock()

    def look(self):
        now = self.clock()
        if self.reader is None or (self.turn and now - self.turn[-1][0] < LOOK_S):
            return
        self.turn.append((now, self.reader.read()))
        if self.timed_begin is not None:
            self.timed.append(self.turn[-1][1])

    def clock_between(self, begin, end):
        clocks = [reading.mhz for at, reading in self.turn if begin <= at < end]
        return statistics.median(clocks) if clocks else 0

    def is_settled(self):
        now = self.clock()
        if now - self.begin_at < SETTLE_S_MIN:
            return False
        if self.reader is None or now - self.begin_at >= SETTLE_S_MAX:
            return True
        before = self.clock_between(now - 2 * WINDOW_S, now - WINDOW_S)
        last = self.clock_between(now - WINDOW_S, now + 1)
        return abs(last - before) <= SETTLED_MHZ

    def begin_timed(self):
        self.timed_begin = self.clock()
        self.joules_begin = self.reader.read().joules if self.reader else 0

    def is_timed(self):
        return self.clock() - self.timed_begin >= TIMED_S

    def end_timed(self, launches):
        self.launches += launches
        if self.reader is None:
            return
        took = self.reader.read().joules - self.joules_begin
        self.knows_energy = self.knows_energy and self.joules_begin > 0 and took > 0
        self.joules += took

    def load(self):
        """Of all turns; None: unknown."""
        if not self.timed:
            return None
        return Load(statistics.median(reading.mhz for reading in self.timed),
                    statistics.fmean(reading.watts for reading in self.timed),
                    self.joules / self.launches * 1e3 if self.knows_energy and self.launches else 0.0)


class Settled:
    """One contender's samples in milliseconds, and its load. `contender`: has steady(), which runs SAMPLE_MS of
    launches and returns their number and the milliseconds of one."""

    def __init__(self, contender, reader, clock):
        self.contender, self.meter, self.samples = contender, LoadMeter(reader, clock), []

    def take_turn(self, windows):
        """Waits until the clock has settled, then times the contender for so many times TIMED_S."""
        meter = self.meter
        meter.begin()
        while not meter.is_settled():
            self.contender.steady()
            meter.look()
        for _ in range(windows):
            launches = 0
            meter.begin_timed()
            while not meter.is_timed():
                count, ms = self.contender.steady()
                launches += count
                self.samples.append(ms)
                meter.look()
            meter.end_timed(launches)


def settle(contenders, reader, clock=time.monotonic):
    """Name -> samples and name -> load of contenders by name, which run in order and then in reverse; the last one
    settles once for both its turns."""
    settled = {name: Settled(contender, reader, clock) for name, contender in contenders.items()}
    *others, last = settled.values() if settled else [None]
    for turn in others:
        turn.take_turn(1)
    if last is not None:
        last.take_turn(2)
    for turn in reversed(others):
        turn.take_turn(1)
    return ({name: turn.samples for name, turn in settled.items()},
            {name: turn.meter.load() for name, turn in settled.items()})
