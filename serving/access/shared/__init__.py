"""Prepared images that gateways share through Valkey or Redis, so that one decode serves them all.

A second tier behind memory, off by default. Nothing ever waits for it longer than `access.shared_cache_timeout_ms`,
and no request's outcome depends on it (docs/decisions/0017-a-shared-tier.md).
"""
