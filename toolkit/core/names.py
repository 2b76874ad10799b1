"""The one table of metric names. The emitter, and later rules, dashboards and runbooks, read it; nothing else names a metric."""

from dataclasses import dataclass
from typing import Literal

TTFT_EDGES_S = (0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 60.0, 300.0)
"""Seconds. Holds every TTFT threshold (0.8 s, 3 s; article section 6.1), so attainment needs no interpolation."""

ITL_EDGES_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds. Holds the ITL thresholds 50 and 100 ms."""

STAGE_EDGES_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.8, 1.0, 3.0, 10.0, 30.0, 100.0)
PIXEL_EDGES = (
    50_000.0,
    200_000.0,
    1_000_000.0,
    4_000_000.0,
    12_000_000.0,
    24_000_000.0,
    48_000_000.0,
    64_000_000.0,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One exported metric. `labels` are bounded sets; `buckets` only for histograms, in the metric's unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


REQUESTS = Metric(
    "toolkit_requests_total",
    "counter",
    "requests",
    "Finished requests by outcome.",
    ("workload_class", "slo_class", "outcome"),
)
TENANT_REQUESTS = Metric(
    "toolkit_tenant_requests_total",
    "counter",
    "requests",
    "Finished requests by API key name.",
    ("tenant", "outcome"),
)
ERRORS = Metric(
    "toolkit_errors_total",
    "counter",
    "errors",
    "Typed errors by code and the hop that failed.",
    ("code", "hop"),
)
SLO_VERDICTS = Metric(
    "toolkit_slo_requests_total",
    "counter",
    "requests",
    "Requests that count for the TTFT SLO: good ones had a first token within the budget; shed, late and failed ones are bad; wrong requests and closed clients do not count.",
    ("workload_class", "slo_class", "verdict"),
)
TTFT = Metric(
    "toolkit_ttft_seconds",
    "histogram",
    "seconds",
    "Arrival to first content token.",
    ("workload_class", "slo_class"),
    TTFT_EDGES_S,
)
ITL = Metric(
    "toolkit_itl_seconds",
    "histogram",
    "seconds",
    "Gap between token-bearing events.",
    ("workload_class",),
    ITL_EDGES_S,
)
DURATION = Metric(
    "toolkit_request_seconds",
    "histogram",
    "seconds",
    "Arrival to end.",
    ("workload_class", "outcome"),
    TTFT_EDGES_S,
)
STAGES = Metric(
    "toolkit_stage_seconds",
    "histogram",
    "seconds",
    "Time spent in one hop, in order: body, parse, fetch, prepare, wait, dispatch, prefill, first_token (or fallback), decode.",
    ("stage",),
    STAGE_EDGES_S,
)
PROMPT_TOKENS = Metric(
    "toolkit_prompt_tokens_total",
    "counter",
    "tokens",
    "Prompt tokens that the engine reported.",
    ("workload_class",),
)
PROMPTS_COMPARED = Metric(
    "toolkit_prompts_compared_total",
    "counter",
    "requests",
    "Requests whose prompt tokens the engine reported: our own number was exact (by its tokenizer and template) or estimated.",
    ("workload_class", "counted"),
)
PROMPT_MISMATCHES = Metric(
    "toolkit_prompt_token_mismatch_total",
    "counter",
    "requests",
    "Requests whose exact prompt tokens differ from those that the engine reported: it should stay 0.",
    ("workload_class",),
)
PROMPT_DIFFERENCE = Metric(
    "toolkit_prompt_token_difference",
    "histogram",
    "tokens",
    "How far the exact prompt tokens are from those that the engine reported, either way.",
    (),
    (0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0),
)
COMPLETION_TOKENS = Metric(
    "toolkit_completion_tokens_total",
    "counter",
    "tokens",
    "Completion tokens that the engine reported, or token events where it reported none.",
    ("workload_class",),
)
DEGRADED = Metric(
    "toolkit_degraded_total",
    "counter",
    "requests",
    "Requests that were given less: smaller images, a lower max_tokens, the fallback endpoint's answer (kind); why: late (the TTFT budget), lease (the KV cap), or the code of the error that it spared.",
    ("kind", "why", "slo_class"),
)
FALLBACK = Metric(
    "toolkit_fallback_requests_total",
    "counter",
    "requests",
    "Requests that the fallback endpoint was to answer: answered, late, failed, gone (the client left); not sent: full, failing, no_time.",
    ("result",),
)
FALLBACK_IN_FLIGHT = Metric(
    "toolkit_fallback_in_flight", "gauge", "requests", "Requests that the fallback endpoint works on."
)
ATTEMPTS = Metric(
    "toolkit_attempts_total",
    "counter",
    "attempts",
    "Attempts made over a pair; each choice (n > 1) has its own. Over the requests that had any: attempts per request.",
)
RETRIES = Metric(
    "toolkit_retries_total",
    "counter",
    "attempts",
    "Attempts that followed a failed one, by what had failed (unreachable, transfer, failed, stalled, busy) and whether a first token came of them: answered, failed.",
    ("cause", "result"),
)
RETRIES_REFUSED = Metric(
    "toolkit_retries_refused_total",
    "counter",
    "attempts",
    "Attempts that failed before their first token and were not made again, by cause and why: too_many, no_pair, no_time, no_budget.",
    ("cause", "why"),
)
RETRY_BUDGET = Metric(
    "toolkit_retry_budget",
    "gauge",
    "attempts",
    "Retries that the budget (retry.budget_share of recent requests) still allows.",
)
ADMIN_CHANGES = Metric(
    "toolkit_admin_changes_total",
    "counter",
    "changes",
    "Changes made through the admin API: set, undo, or expiry of one that was made for a while.",
    ("kind",),
)
ADMIN_OVERRIDDEN = Metric(
    "toolkit_admin_overridden",
    "gauge",
    "settings",
    "Settings that are not as configured now, since somebody changed them through the admin API.",
)
SEATED = Metric("toolkit_requests_preparing", "gauge", "requests", "Requests being read and prepared.")
WAITING = Metric(
    "toolkit_requests_waiting", "gauge", "requests", "Prepared requests waiting for an engine slot."
)
QUEUED = Metric(
    "toolkit_requests_queued",
    "gauge",
    "requests",
    "Prepared requests waiting for an engine slot, by class.",
    ("workload_class", "slo_class"),
)
IN_FLIGHT = Metric("toolkit_requests_in_flight", "gauge", "requests", "Requests inside the engines.")
IN_FLIGHT_LIMIT = Metric(
    "toolkit_in_flight_limit",
    "gauge",
    "requests",
    "How many requests the engines get at once now: adapted to their first tokens, up to schedule.max_in_flight.",
)
WINDOW = Metric(
    "toolkit_first_token_window",
    "gauge",
    "requests",
    "How many requests may be between entering and first token at a decode engine now; 0 before it has had any.",
    ("decode",),
)
WINDOW_INSIDE = Metric(
    "toolkit_before_first_token",
    "gauge",
    "requests",
    "Of those, how many are.",
    ("decode",),
)
KV_POOL = Metric(
    "toolkit_kv_pool_tokens",
    "gauge",
    "tokens",
    "Size of a decode engine's KV pool; 0 while it does not tell, and requests go there without leases.",
    ("decode",),
)
KV_LEASED = Metric(
    "toolkit_kv_leased_tokens",
    "gauge",
    "tokens",
    "Of that, the most that the requests of this gateway there may use.",
    ("decode",),
)
KV_FOREIGN = Metric(
    "toolkit_kv_foreign_tokens",
    "gauge",
    "tokens",
    "Of that, what others use: by the engine's report, beyond all that this gateway had leased.",
    ("decode",),
)
KV_GRANT = Metric(
    "toolkit_kv_grant_tokens",
    "gauge",
    "tokens",
    "Of that, what this gateway may lease now, where gateways share pools (section `shared`).",
    ("decode",),
)
KV_WAITING = Metric(
    "toolkit_requests_lacking_kv",
    "gauge",
    "requests",
    "Prepared requests that have found an engine slot free and no room for their KV.",
)
KV_WAIT = Metric(
    "toolkit_kv_wait_seconds",
    "histogram",
    "seconds",
    "Of the wait of requests that entered the engines, the part in which a slot was free and their KV was not.",
    ("workload_class",),
    (0.0, *STAGE_EDGES_S),
)
LEDGER_UP = Metric(
    "toolkit_ledger_up",
    "gauge",
    "bool",
    "0 while the server does not answer where gateways agree on their parts of the pools.",
)
LEDGER_STANDING = Metric(
    "toolkit_ledger_standing",
    "gauge",
    "bool",
    "By what right this gateway leases: granted; alone: the server is away, it works on its share; none: nothing new enters.",
    ("standing",),
)
LEDGER_GATEWAYS = Metric(
    "toolkit_ledger_gateways", "gauge", "gateways", "Gateways that share, this one included, as last known."
)
LEDGER_RENEWALS = Metric(
    "toolkit_ledger_renewals_total",
    "counter",
    "renewals",
    "Renewals of this gateway's parts: answered, late (the ask came too late and changed nothing), failed.",
    ("result",),
)
KV_REFUSED = Metric(
    "toolkit_kv_refused_total",
    "counter",
    "requests",
    "Requests that ended for lack of KV, by error code: over the cap (kv_lease_exceeded), or while no room was found in time.",
    ("workload_class", "code"),
)
REFUSED_EARLY = Metric(
    "toolkit_refused_early_total",
    "counter",
    "requests",
    "Requests refused at once since their first token would have come too late.",
    ("workload_class", "slo_class"),
)
IMAGES = Metric(
    "toolkit_images_total",
    "counter",
    "images",
    "Images of requests, those that the cache held too.",
    ("format", "origin"),
)
IMAGE_BYTES = Metric(
    "toolkit_image_bytes_total", "counter", "bytes", "Received bytes of prepared images.", ("format",)
)
IMAGE_PIXELS = Metric(
    "toolkit_image_pixels", "histogram", "pixels", "Source area of prepared images.", (), PIXEL_EDGES
)
IMAGE_TOKENS = Metric("toolkit_image_tokens_total", "counter", "tokens", "Prompt tokens of prepared images.")
DECODE_BUSY = Metric(
    "toolkit_decode_workers_busy",
    "gauge",
    "workers",
    "Workers at work on images, by lane: light and apart (small), heavy.",
    ("lane",),
)
DECODE_QUEUED = Metric(
    "toolkit_decode_queue_images", "gauge", "images", "Images waiting to be prepared.", ("lane",)
)
DECODE_TAKEN = Metric(
    "toolkit_decode_memory_bytes",
    "gauge",
    "bytes",
    "Memory that the images at work are estimated to take at their peaks.",
    ("lane",),
)
DECODE_LOST = Metric(
    "toolkit_decode_processes_lost_total",
    "counter",
    "processes",
    "Decoding processes that were ended from outside (for want of memory, for one), at work or idle.",
)
BODY_HELD = Metric(
    "toolkit_body_memory_bytes", "gauge", "bytes", "Memory held for request bodies and engine bodies."
)
BODY_WAITING = Metric(
    "toolkit_body_memory_waiting", "gauge", "requests", "Requests whose bodies wait unread for memory."
)
IMAGE_LINE = Metric(
    "toolkit_image_line_seconds",
    "histogram",
    "seconds",
    "Time an image stood in line to be prepared.",
    ("lane",),
    STAGE_EDGES_S,
)
IMAGE_CPU = Metric(
    "toolkit_image_cpu_seconds",
    "histogram",
    "seconds",
    "CPU time of one step of preparing an image: decode, resize, encode; format: of the file that came.",
    ("step", "format"),
    STAGE_EDGES_S,
)
IMAGE_CACHE = Metric(
    "toolkit_image_cache_total",
    "counter",
    "images",
    "Images asked of a cache tier: hit (held, in memory a refusal too), wait (another request was preparing it), miss; shared tier: error (failed, too slow), skipped (not asked), foreign (not usable).",
    ("tier", "result"),
)
IMAGE_CACHE_BYTES = Metric(
    "toolkit_image_cache_bytes", "gauge", "bytes", "Memory taken by what the cache holds.", ("tier",)
)
IMAGE_CACHE_ENTRIES = Metric(
    "toolkit_image_cache_entries", "gauge", "images", "Images and refusals that the cache holds.", ("tier",)
)
SHARED_CACHE_LOOKUP = Metric(
    "toolkit_shared_cache_lookup_seconds",
    "histogram",
    "seconds",
    "Time an image waited for the shared cache tier.",
    (),
    (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0),
)
SHARED_CACHE_WRITES = Metric(
    "toolkit_shared_cache_writes_total",
    "counter",
    "images",
    "Images for the shared cache tier: stored, dropped (queue full, store left alone), error, too_large.",
    ("result",),
)
SHARED_CACHE_BYTES = Metric(
    "toolkit_shared_cache_bytes_total",
    "counter",
    "bytes",
    "Bytes read from and written to the shared cache tier.",
    ("direction",),
)
SHARED_CACHE_UP = Metric(
    "toolkit_shared_cache_up",
    "gauge",
    "bool",
    "0 while the shared cache tier is left alone because it failed.",
)
IMAGE_URLS = Metric(
    "toolkit_image_urls_total",
    "counter",
    "images",
    "Images by URL: downloaded, unchanged (304), fresh (not asked for), joined (another request was downloading it).",
    ("result",),
)
IMAGE_FETCHES = Metric(
    "toolkit_image_fetches_total",
    "counter",
    "images",
    "Image URLs by how their fetch ended: downloaded, unchanged (304), fresh (not asked for), given_up (nobody waits any more), or the error's code.",
    ("result",),
)
IMAGE_FETCH_SECONDS = Metric(
    "toolkit_image_fetch_seconds",
    "histogram",
    "seconds",
    "Time from asking for an image by URL to its last byte, or to the 304, its wait for a place and redirects included.",
    (),
    STAGE_EDGES_S,
)
IMAGE_DOWNLOADS = Metric(
    "toolkit_image_downloads",
    "gauge",
    "images",
    "Image downloads that are running, and that are waiting for a place (access.max_downloads, max_downloads_per_host).",
    ("state",),
)
IMAGE_DOWNLOAD_BYTES = Metric(
    "toolkit_image_download_bytes_total",
    "counter",
    "bytes",
    "Bytes of images read from URLs, of refused ones too.",
)
IMAGE_DOWNLOAD_HELD = Metric(
    "toolkit_image_download_held_bytes",
    "gauge",
    "bytes",
    "Memory taken by images from URLs that are being downloaded, or wait to be prepared.",
)
IMAGE_HOST_BREAKERS = Metric(
    "toolkit_image_host_breakers_total",
    "counter",
    "openings",
    "Times that a host of images was left alone for a while, since it failed several times in a row.",
)
ENGINE_UP = Metric(
    "toolkit_engine_up", "gauge", "bool", "1 while the engine answers /ready.", ("engine", "role")
)
PAIR_READY = Metric(
    "toolkit_pair_ready",
    "gauge",
    "bool",
    "1 while the pair is in rotation: an image went through it.",
    ("prefill", "decode"),
)
PAIR_IN_FLIGHT = Metric(
    "toolkit_pair_in_flight", "gauge", "requests", "Requests inside one pair.", ("prefill", "decode")
)
PAIRS_TAKEN = Metric(
    "toolkit_pairs_taken_total",
    "counter",
    "attempts",
    "Pairs taken, by the pool of the request and what chose the prefill: affinity (it has it cached), spill (that one was too full), new (first of its kind), load.",
    ("pool", "by"),
)
INSTANCE_TOKENS = Metric(
    "toolkit_instance_outstanding_tokens",
    "gauge",
    "tokens",
    "What an instance has been given: prompt tokens that a prefill has not prefilled yet; prompt and max_tokens of the requests on a decode.",
    ("engine", "role"),
)
INSTANCE_WEIGHT = Metric(
    "toolkit_instance_weight",
    "gauge",
    "weight",
    "Its part of the work beside others of its role.",
    ("engine",),
)
INSTANCE_DRAINED = Metric(
    "toolkit_instance_drained", "gauge", "bool", "1 while it gets no new requests, by order.", ("engine",)
)
POOL_HELD = Metric(
    "toolkit_pool_held_tokens",
    "gauge",
    "tokens",
    "What the requests of a pool may use of the decodes at most: prompt and max_tokens. No series without pools.",
    ("pool",),
)
INSTANCE_POOL = Metric(
    "toolkit_instance_pool", "gauge", "info", "Constant 1: the prefill serves the pool.", ("engine", "pool")
)
ABORTS = Metric("toolkit_leg_aborts_total", "counter", "aborts", "Abort requests sent to a leg.", ("engine",))
LOOP_LAG = Metric(
    "toolkit_event_loop_lag_seconds",
    "histogram",
    "seconds",
    "How late the event loop ran a timer.",
    (),
    (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
)
JOURNAL_DROPPED = Metric(
    "toolkit_journal_dropped_total",
    "counter",
    "records",
    "Records not written because the disk failed or the queue was full.",
)
STORAGE_UPLOADS = Metric(
    "toolkit_storage_uploads_total",
    "counter",
    "objects",
    "Attempts to store an image or a result: uploaded, exists (the image was there), failed (it is tried again).",
    ("kind", "result"),
)
STORAGE_UPLOAD_BYTES = Metric(
    "toolkit_storage_upload_bytes_total", "counter", "bytes", "Bytes of uploaded objects.", ("kind",)
)
STORAGE_UPLOAD_SECONDS = Metric(
    "toolkit_storage_upload_seconds",
    "histogram",
    "seconds",
    "Start of a successful upload until the object was seen whole in the store.",
    ("kind",),
    STAGE_EDGES_S,
)
STORAGE_DROPPED = Metric(
    "toolkit_storage_dropped_total",
    "counter",
    "objects",
    "Images and results that were not stored: spool_full, disk_behind (the spool's disk is slow), disk_failed, expired.",
    ("kind", "reason"),
)
STORAGE_DELETED = Metric(
    "toolkit_storage_deleted_total", "counter", "objects", "Objects deleted by their retention.", ("kind",)
)
STORAGE_UP = Metric(
    "toolkit_storage_up",
    "gauge",
    "bool",
    "1 while the last request to the store succeeded; no series where nothing is stored.",
    ("backend",),
)
STORAGE_SPOOL_BYTES = Metric(
    "toolkit_storage_spool_bytes", "gauge", "bytes", "Accepted and not yet in the store."
)
STORAGE_SPOOL_ENTRIES = Metric(
    "toolkit_storage_spool_entries", "gauge", "objects", "Accepted and not yet in the store."
)
STORAGE_SPOOL_AGE = Metric(
    "toolkit_storage_spool_oldest_seconds", "gauge", "seconds", "Age of the oldest entry in the spool."
)
SIMULATED = Metric(
    "toolkit_simulated",
    "gauge",
    "bool",
    "1: the engines are stand-ins that compute no model, so no figure beside it is a model's. A stand-in engine has it too.",
)
BUILD_INFO = Metric(
    "toolkit_build_info", "gauge", "info", "Constant 1; the version is a label.", ("version",)
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
