"""Nouns, maths, configuration, clock and errors that every other package builds on; nothing heavy."""
