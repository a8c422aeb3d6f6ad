"""Studies: runs in cells, their metrics, comparisons and frontiers."""
