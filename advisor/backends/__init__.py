"""Live Slurm and snapshot files: readers, decoders, command lines; the only starter of programs."""
