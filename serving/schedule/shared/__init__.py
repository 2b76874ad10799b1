"""Several gateways before the same engines: KV pools and the retry budget are shared through a ledger in Valkey or Redis.

Admission stays as it is, at once and without I/O: each gateway holds a *grant* of each decode's pool, a number of pages,
and leases out of that. A background task renews the grants; no request ever waits for the server
(docs/decisions/0029-gateways-share-the-pool.md).
"""
