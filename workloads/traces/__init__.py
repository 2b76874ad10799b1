"""Public traces as streams of records: one reader per format, each streamed, each naming the line it cannot read."""
