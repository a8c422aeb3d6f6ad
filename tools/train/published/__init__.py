"""DL2's published setting: jobs with workers and parameter servers on a cluster of equal nodes.

Source: Peng et al., "DL2: A Deep Learning-driven Scheduler for Deep Learning Clusters", arXiv 1909.06040, and the
authors' code. Where the two differ, `Published` has a switch, and the paper's way is the default.
"""
