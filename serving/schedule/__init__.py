"""The scheduling layer: who enters the engine, and when. Sans-I/O."""
