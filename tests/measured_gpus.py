"""A real Prometheus with recorded series of GPUs, and a web server that answers in its place."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

METRIC: Final = "DCGM_FI_DEV_GPU_UTIL"
SCRAPED_S: Final = 30
_STARTS_S: Final = 30.0
_PORT: Final = re.compile(r'"Listening on" (?:.* )?address=127\.0\.0\.1:([0-9]+)')
_BEFORE_S: Final = 26 * 3600
# Series go on for a while, since the tests take time.
_AHEAD_S: Final = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeries:
    """A series: its labels, and the utilisation at an instant in POSIX seconds, None for no sample."""

    labels: str
    percent: Callable[[float], float | None]

    def samples(self, metric: str, now: int) -> Iterator[str]:
        """Yield its samples as OpenMetrics writes them."""
        for instant in range(now - _BEFORE_S, now + _AHEAD_S, SCRAPED_S):
            value = self.percent(instant)
            if value is not None:
                yield f"{metric}{{{self.labels}}} {value} {instant}"


@contextmanager
def prometheus_with(series: Sequence[GpuSeries], folder: Path, program: Path, promtool: str) -> Iterator[str]:
    """Run a Prometheus that holds some series while the block runs, and yield its URL."""
    now = int(time.time())
    lines = [f"# TYPE {METRIC} gauge", *(line for each in series for line in each.samples(METRIC, now)), "# EOF"]
    (folder / "series.txt").write_text("\n".join(lines) + "\n")
    made = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "series.txt"), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text(f"global:\n  scrape_interval: {SCRAPED_S}s\n")
    argv = [
        str(program), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        "--storage.tsdb.retention.time=30d", "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield _ready(folder / "log", process)
    finally:
        process.terminate()
        process.wait(10.0)


def _ready(log: Path, process: "subprocess.Popen[bytes]") -> str:
    """Wait until a Prometheus answers, and return its URL, by the port that its log names."""
    deadline = time.monotonic() + _STARTS_S
    while time.monotonic() < deadline and process.poll() is None:
        for port in _PORT.findall(log.read_text()):
            url = f"http://127.0.0.1:{port}"
            try:
                with urlopen(f"{url}/-/ready", timeout=5):  # noqa: S310  (loopback)
                    return url
            except URLError:
                break
        time.sleep(0.1)
    raise AssertionError(f"Prometheus did not start: {log.read_text()}")


def vector(*samples: tuple[dict[str, str], float, str]) -> bytes:
    """Return the answer to a query that holds some samples: labels, instant, value."""
    result = [{"metric": labels, "value": [instant, value]} for labels, instant, value in samples]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


@dataclass
class StandIn:
    """A web server on loopback that answers queries in turn, the last one again and again; it notes what it got."""

    url: str = ""
    answers: Sequence[bytes] = ()
    status: int = 200
    location: str = ""
    requests: list[BaseHTTPRequestHandler] = field(default_factory=list)
    hang: threading.Event | None = None


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Run such a server while the block runs."""
    peer = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            peer.requests.append(self)
            if peer.hang is not None:
                peer.hang.wait(60.0)
            body = peer.answers[min(len(peer.requests), len(peer.answers)) - 1] if peer.answers else b""
            self.send_response(peer.status)
            if peer.location:
                self.send_header("Location", peer.location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing where the reader has closed the connection, as it does on an answer that is too long."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    peer.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield peer
    finally:
        if peer.hang is not None:
            peer.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()
