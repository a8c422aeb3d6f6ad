"""Trains and judges the placement of gangs by several agents: our interpretation of Zhao and Wu, arXiv 2112.13354."""
