"""Follows jobs through snapshots, and evaluates their outcomes, forecasts and experiments."""
