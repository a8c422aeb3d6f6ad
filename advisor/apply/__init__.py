"""Carries recommendations to the cluster, and takes back what is due."""
