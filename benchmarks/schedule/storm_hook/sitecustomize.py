"""Imported by every Python process of an engine that storm.py starts: faults that can be turned on and off while it runs.

The file named in STORM_FAULTS holds two numbers. The first becomes SGLANG_TEST_DISAGG_FAILURE_PROB, SGLang's own fault hook,
which it reads anew at every poll (sglang/srt/environ.py: EnvField.get). The second, not 0: Mooncake's transfers return -1,
as they do when a peer is gone, so that SGLang blacklists the session by its own rules.
"""

import os
import sys
import threading
import time
from pathlib import Path

ENGINE = "sglang.srt.distributed.device_communicators.mooncake_transfer_engine"


def _watch(path):
    while True:
        try:
            polls, transfers = path.read_text().split()
        except (OSError, ValueError):
            polls, transfers = "0", "0"
        os.environ["SGLANG_TEST_DISAGG_FAILURE_PROB"] = polls
        module = sys.modules.get(ENGINE)
        if module is not None and hasattr(module, "MooncakeTransferEngine"):
            _fail(module.MooncakeTransferEngine, transfers != "0")
        time.sleep(0.05)


def _fail(engine, fails):
    if fails and not hasattr(engine, "_works"):
        engine._works = engine.batch_transfer_sync
        engine.batch_transfer_sync = lambda *_, **__: -1
    elif not fails and hasattr(engine, "_works"):
        engine.batch_transfer_sync = engine._works
        del engine._works


if "STORM_FAULTS" in os.environ:
    threading.Thread(target=_watch, args=(Path(os.environ["STORM_FAULTS"]),), daemon=True).start()
