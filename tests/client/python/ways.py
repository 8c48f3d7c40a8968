"""The ways to make one call with the Python client, and a handler that answers as a test says."""

import asyncio

from support import answer, grpc, np
import warpcall

X = np.arange(6, dtype=np.float32).reshape(2, 3)
REPLY = answer(X)
QUICK = warpcall.Retry(backoff_initial=0.001, backoff_max=0.002)


class Script:
    """A handler that refuses with each status in turn, then answers. A status: (code, pushback)."""

    def __init__(self, *refusals, repeat=False):
        self.refusals, self.repeat, self.calls = refusals, repeat, 0

    def __call__(self, request, context):
        number, self.calls = self.calls, self.calls + 1
        if self.repeat:
            number %= len(self.refusals)
        if number < len(self.refusals):
            code, pushback = self.refusals[number]
            trailers = [(warpcall.errors.REQUEST_ID_KEY, f"warpcall-{number}")]
            if pushback is not None:
                trailers.append((warpcall.errors.PUSHBACK_KEY, str(pushback)))
            context.set_trailing_metadata(trailers)
            context.abort(getattr(grpc.StatusCode, code), f"refused with {code}")
        return REPLY


def by_run(client):
    return client.identity(X)


def by_future(client):
    return client.submit("identity", X).result(timeout=60)


def by_map(client):
    return next(client.map("identity", [X]))


class AioClient:
    """warpcall's calls through asyncio, with a blocking interface."""

    def __init__(self, *arguments, **options):
        self.arguments, self.options = arguments, options

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __getattr__(self, kernel):
        async def call(x):
            async with warpcall.aio.connect(*self.arguments, **self.options) as client:
                return await getattr(client, kernel)(x)
        return lambda x: asyncio.run(call(x))


WAYS = [(warpcall.connect, by_run), (warpcall.connect, by_future), (warpcall.connect, by_map),
        (AioClient, by_run)]
