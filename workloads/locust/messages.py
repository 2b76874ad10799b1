"""The words between master and workers, beside locust's own. Every message names its run.

RUN   to one worker: its task and the whole plan, compressed. The plan travels and not the profile, whose files
      (traces, recordings) the worker's machine may lack. The key for the target travels too, unencrypted.
GO    to one worker, once all are ready: send from now on.
HELLO, READY, SAMPLES, ENDED   from a worker: it listens to RUN; its bodies are made; lines of samples.jsonl; how its
      core ended.
"""

HELLO, RUN, GO, READY, SAMPLES, ENDED = (
    f"toolkit_{word}" for word in ("hello", "run", "go", "ready", "samples", "ended")
)
