"""The compiled part of the simulator: C over the arrays of a run, and the binding that calls it."""
