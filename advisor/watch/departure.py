"""Ends a process that reads clusters in threads, though one of them is at work."""

import os
import sys
import threading


def leave() -> None:
    """Wait for the threads that have to end, and then end the process at once if others still run.

    A thread that reads a cluster cannot be cancelled, and the compiled libraries that it is in abort the process if the
    interpreter ends around them. Returns if no such thread runs.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join()
    if any(thread.is_alive() for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
