"""The daemon: rounds of the cycle, one after the other, with all that keeps them safe."""
