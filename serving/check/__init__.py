"""`toolkit serve --check`: a configuration as facts (gather.py), looked over by a table of rules (table.py)."""
