"""A client that asks at a fixed rate over connections that stay open.

    python benchmarks/service_client.py 127.0.0.1 9464 --rate 1000 --seconds 30

Requests go out at the times that the rate says, whether earlier ones were answered or not, as far as connections are
free; latency counts from the time at which one was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from itertools import cycle

import h11

CONNECTIONS = 16
PATHS = ("/metrics", "/status")


class Asking:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = h11.Connection(h11.CLIENT)

    async def get(self, path: str) -> int:
        """The status of an answer that was received whole."""
        request = h11.Request(method="GET", target=path, headers=[("Host", "127.0.0.1")])
        self._writer.write(self._connection.send(request) + self._connection.send(h11.EndOfMessage()))
        status = 0
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(2**16))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.EndOfMessage):
                self._connection.start_next_cycle()
                return status


async def ask(host: str, port: int, rate: float, seconds: float) -> dict[str, float]:
    """Asks for that long; returns what was reached."""
    paths, due = cycle(PATHS), iter(range(int(rate * seconds)))
    latencies_s: list[float] = []
    others = 0
    connections = [Asking(*await asyncio.open_connection(host, port)) for _ in range(CONNECTIONS)]
    print("begun", flush=True)
    begin = time.perf_counter()

    async def work(connection: Asking) -> None:
        nonlocal others
        for number in due:
            when = begin + number / rate
            if (wait := when - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            others += await connection.get(next(paths)) != 200
            latencies_s.append(time.perf_counter() - when)

    await asyncio.gather(*(work(connection) for connection in connections))
    took = time.perf_counter() - begin
    latencies_s.sort()
    return {
        "requests_per_s": len(latencies_s) / took,
        "p50_ms": 1e3 * latencies_s[len(latencies_s) // 2],
        "p99_ms": 1e3 * latencies_s[len(latencies_s) * 99 // 100],
        "not_200": others,
        "client_cpu_s": time.process_time(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(ask(options.host, options.port, options.rate, options.seconds))))
