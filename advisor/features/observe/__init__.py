"""What learned policies see of the cluster and of one decision, the same from a snapshot and from the simulator."""
