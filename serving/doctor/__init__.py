"""`toolkit doctor`: facts of this machine (machine.py, ports.py), judged purely (judge.py)."""
