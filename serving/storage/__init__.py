"""Raw images and results in an object store: off by default, never in the way of an answer."""
