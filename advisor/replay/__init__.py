"""Recorded cycles planned again, and policies compared on them."""
