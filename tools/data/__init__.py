"""Reads tables, traces and measurements that others published; the files are not part of this project."""
