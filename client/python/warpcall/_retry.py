"""Retries of refused calls, as in the C++ client (client/cpp/rpc/retry.h), after gRFC A6.

Trying again is always safe: no method of the service has side effects, but for Put, and for calls
that keep their outputs. A tensor of theirs whose handle got lost on the way ends by itself.
"""

from __future__ import annotations

import dataclasses
import random
import threading

_GROWTH = 2.0
# Spreads clients that were refused at the same moment; the width is gRFC A6's.
_JITTER = 0.2


@dataclasses.dataclass(frozen=True)
class Retry:
    """The retry policy of a client. Times are in seconds.

    UNAVAILABLE is retried, and RESOURCE_EXHAUSTED if the server gave a time
    (`grpc-retry-pushback-ms`), while the next attempt would start before the call's deadline.
    """

    attempts_max: int = 5
    """Maximum attempts of one call, the first included; 1: never retry."""
    backoff_initial: float = 0.05
    """The pause before attempt n + 1 is a random 80 to 120 % of min(backoff_max, backoff_initial x
    2^(n - 1))."""
    backoff_max: float = 2.0
    pushback_max: float = 60.0
    """A server that asks for a longer pause than this ends the call."""
    budget_max: float = 50.0
    """All calls of a client share a budget: a retry takes one token, a success gives
    `budget_per_success` back, up to `budget_max`. So a server in trouble gets at most a tenth more
    calls than it answers."""
    budget_per_success: float = 0.1


class Budget:
    """The retries that a client has left. Thread-safe."""

    def __init__(self, retry: Retry) -> None:
        self._max, self._per_success = retry.budget_max, retry.budget_per_success
        self._tokens = retry.budget_max
        self._lock = threading.Lock()

    def take(self) -> bool:
        """False when there is no whole token left."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def add_success(self) -> None:
        if self._tokens >= self._max:  # it only ever sinks by take: a race gives a tenth too little
            return
        with self._lock:
            self._tokens = min(self._max, self._tokens + self._per_success)


class Schedule:
    """The retries of one call."""

    def __init__(self, retry: Retry, budget: Budget) -> None:
        self._retry, self._budget = retry, budget
        self.attempts = 1
        self._backoffs = 0

    def next(
        self, code: str, pushback: float | None, now: float, deadline: float | None
    ) -> float | None:
        """Seconds to wait before the next attempt; None when the refusal stands. `pushback` as
        errors.parse_pushback returns it; times on one clock."""
        retry = self._retry
        # Without a pushback it is gRPC's own refusal of a message that is too large.
        retryable = code == "UNAVAILABLE" or (code == "RESOURCE_EXHAUSTED" and pushback is not None)
        if not retryable or self.attempts >= retry.attempts_max:
            return None
        if pushback is None:
            pause = min(retry.backoff_max, retry.backoff_initial * _GROWTH**self._backoffs)
            pause *= random.uniform(1 - _JITTER, 1 + _JITTER)
            self._backoffs += 1
        elif 0 <= pushback <= retry.pushback_max:
            pause = pushback
            self._backoffs = 0  # a later failure without the server's advice starts afresh
        else:
            return None
        if (deadline is not None and now + pause >= deadline) or not self._budget.take():
            return None
        self.attempts += 1
        return pause
