"""A real S3 server: SeaweedFS, on free ports of the loopback address, in a folder of its own.

After a kill (its own, or a client's in mid-request) it may leave a folder out of its listings for good; the objects in it are
there all the same. So what must be there after a kill is asked for by its key.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

BUCKET = "kept"
KEY, SECRET = "weed-key", "weed-secret-0123456789"
PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    "s3.port", "s3.port.grpc", "admin.port", "admin.port.grpc",
)  # fmt: skip


class Weed:
    """One server; killed and started again it has what it had acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        identity = {
            "name": "t",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def start(self) -> None:
        binary = Path(sys.executable).with_name("weed")
        assert binary.exists() or shutil.which("weed"), "weed is missing: make install"
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        with (self._folder / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(binary), "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._folder / 'data'}", *ports,
                    f"-s3.config={self._folder / 's3.json'}", f"-bucket={BUCKET}", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
                    "-master.telemetry=false", f"-filer.localSocket={self._folder / 'filer.sock'}",
                ],
                stdout=log, stderr=log, cwd=self._folder, start_new_session=True,
            )  # fmt: skip
        self._wait()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _wait(self) -> None:
        """Until a PUT works: the port is open before the volumes are there."""
        import obstore
        from obstore.exceptions import BaseError

        deadline = time.monotonic() + 60
        while True:
            try:
                obstore.put(self.store(), "started", b"1")
            except (BaseError, OSError):
                assert self._process is not None
                assert self._process.poll() is None, (self._folder / "weed.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "weed does not take a PUT after 60 s"
                time.sleep(0.2)
            else:
                return

    def store(self, prefix: str = ""):  # type: ignore[no-untyped-def]
        """A client of its own, to see what is there."""
        from obstore.store import S3Store

        return S3Store(
            BUCKET,
            prefix=prefix or None,
            config={"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": self.endpoint},
            client_options={"allow_http": True, "timeout": "10s"},
            retry_config={"max_retries": 0},
        )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:  # all stay bound until all are found
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
