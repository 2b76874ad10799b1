"""From samples to numbers (summary), from numbers to text (render)."""
