"""Settings of every test."""

import os

# The loops of the simulator run as plain Python, so that coverage sees them and nothing waits for a compiler.
# `tests/sim/test_compiled.py` compares them with what the compiler makes of them.
os.environ["NUMBA_DISABLE_JIT"] = "1"
