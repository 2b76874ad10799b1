"""A small streaming HTTP/1.1 client: exact arrival times, bounded buffers, told truncation."""
