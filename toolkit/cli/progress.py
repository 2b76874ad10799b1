"""What people see while a service starts, runs and stops."""

import base64
import contextlib
import importlib.resources
import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from serving.engines.restart import State
from serving.launcher import FirstAnswer
from serving.service import Service
from serving.supervisor import News
from serving.topology import Plan
from toolkit.core.errors import ToolkitError
from toolkit.core.masked import masked

REMIND_S = 15.0  # a wait is explained again this often
PHOTO_REQUEST = "photo-request.json"
NO_STORES: Mapping[str, str] = {}


class Progress:
    """Prints a line per event, and one now and then while nothing happens."""

    def __init__(self, plan: Plan, run_dir: Path, *, as_json: bool) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._as_json = as_json
        self._began = time.monotonic()
        self._waiting = {launch.name for launch in plan.launches}
        self._over = threading.Event()
        self.was_ready = False
        self._reminder = threading.Thread(target=self._remind, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        names = [launch.name for launch in self._plan.launches]
        kind = "simulated " if self._plan.config.engine.kind == "simulated" else ""
        what = (
            f"starting {kind}{', '.join(names)} and the gateway"
            if names
            else "fronting engines that run already"
        )
        self._say("run", f"{what}; run folder {from_here(self._run_dir)}", run_dir=str(self._run_dir))
        self._reminder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._reminder.join()
        if error is None:
            self._say("stopped", "everything is down")
        elif isinstance(error, ToolkitError) and self._as_json:
            self._print(json.dumps({"event": "failed", "message": error.message}))

    def hear(self, news: News) -> None:
        if news.state is State.READY:
            self._waiting.discard(news.name)
        elif news.state is State.STARTING:
            self._waiting.add(news.name)
        self._say(news.state.value, f"{news.name}: {news.what}", name=news.name, what=news.what)

    def question(self, service: Service) -> bytes:
        """About the photo, in a few words; the run folder keeps a longer one for the curl line."""
        with contextlib.suppress(OSError):
            (self._run_dir / PHOTO_REQUEST).write_text(photo_request(service.model_name), encoding="utf-8")
        return photo_request(service.model_name, max_tokens=8).encode()

    def ready(self, service: Service, first: FirstAnswer, stores: Mapping[str, str] = NO_STORES) -> None:
        """Say where everything is and how to use it."""
        self.was_ready = True
        after_s = time.monotonic() - self._began
        if self._as_json:
            self._say(
                "service_ready",
                "",
                url=service.gateway_url,
                engines={engine.name: engine.url for engine in service.engines},
                model=service.model_name,
                simulated=service.config.engine.kind == "simulated",
                stores=dict(stores),
                photo={"took_s": round(first.took_s, 3), "refusal": first.refusal},
            )
        else:
            self._print(banner(service, self._run_dir, first, after_s, stores))

    def _remind(self) -> None:
        while not self._over.wait(REMIND_S):
            waiting = sorted(self._waiting)
            engines = [name for name in waiting if name != "gateway"]
            if engines:
                what = f"waiting for {', '.join(engines)}: SGLang is importing and loading; see {from_here(self._run_dir)}/logs"
                self._say("waiting", what, names=waiting)
            elif waiting:
                what = "waiting for the first image to go through a pair"
                shares = ", and for a part of the shared pools" if self._plan.config.shared.url else ""
                self._say("waiting", what + shares, names=waiting)

    def _say(self, event: str, text: str, **fields: Any) -> None:
        after_s = time.monotonic() - self._began
        if self._as_json:
            self._print(json.dumps({"event": event, "after_s": round(after_s, 3), **fields}))
        else:
            self._print(f"{after_s:6.1f} s  {text}")

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: the service goes on
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


def photo_request(model: str, max_tokens: int = 32) -> str:
    """A streamed question about a real photo."""
    photo = importlib.resources.files("workloads").joinpath("assets", "photos", "china.jpg").read_bytes()
    content = [
        {"type": "text", "text": "What is in this image?"},
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/jpeg;base64,{base64.b64encode(photo).decode()}"},
        },
    ]
    return json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "stream": True,
        }
    )


def banner(
    service: Service, run_dir: Path, first: FirstAnswer, after_s: float, stores: Mapping[str, str] = NO_STORES
) -> str:
    """Where everything is and what to do next."""
    engines = "\n".join(
        f"  {engine.name:<11} {engine.url}"
        + (f"      bootstrap port {engine.bootstrap_port}" if engine.bootstrap_port else "")
        for engine in service.engines
    )
    photo = f"a photo was answered in {first.took_s:.1f} s"
    if first.refusal:
        photo = f"a photo was NOT answered: {first.refusal}"
    stand_in = (
        "  SIMULATED engines: no model computes here" if service.config.engine.kind == "simulated" else ""
    )
    folder = from_here(run_dir)
    beside = "".join(
        f"\n  {name:<12}{store_line(name, service, how, folder)}" for name, how in stores.items()
    )
    request = shlex.quote(str(folder / PHOTO_REQUEST))
    key = " -H 'Authorization: Bearer YOUR_KEY'" if service.config.gateway.api_keys_file else ""
    return f"""
Ready after {after_s:.0f} s; {photo}.

  gateway     {service.gateway_url}/v1      model {service.model_name}{stand_in}
{engines}
  run folder  {folder}   (logs/, journal/, service.json){beside}

Ask about a photo:
  curl -N {service.gateway_url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d @{request}

Next: {own_command()} bench --profile smoke        Stop: Ctrl-C
"""


def store_line(name: str, service: Service, standing: str, folder: Path) -> str:
    """A store that requests go on without: where, and whether it works."""
    config = service.config
    urls = {"object store": config.storage.url, "shared ledger": config.shared.url}
    where = masked(urls.get(name, config.access.shared_cache_url))
    if standing == "works":
        return f"  {where}"
    how = "has not answered yet" if standing == "unknown" else f"FAILS ({standing.removeprefix('fails: ')})"
    then = "requests go on without it"
    if name == "object store":
        then += ", what is to be stored waits in the spool"
    elif name == "shared ledger":
        then = "requests go on within what was granted"
    return f"  {where}   {how}: {then}; see {folder}/logs/gateway.log"


def from_here(folder: Path) -> Path:
    """As it is named from the current folder, when it lies below it."""
    with contextlib.suppress(ValueError):
        return folder.relative_to(Path.cwd())
    return folder


def own_command() -> str:
    """How to call this program from here: by name where the PATH finds it, else by its path."""
    own = Path(sys.argv[0])
    found = shutil.which(own.name)
    if found is not None and Path(found).resolve() == own.resolve():
        return own.name
    below = os.path.relpath(own)
    return shlex.quote(str(own.resolve()) if below.startswith("..") else below)
