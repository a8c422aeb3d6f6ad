"""A process ends at once though a thread of it reads a cluster, but never before what has to end."""

import subprocess
import sys

PROGRAM = """
import threading, time
from advisor.watch.clusters import leave

def write(word, after_s):
    time.sleep(after_s)
    print(word, flush=True)

threading.Thread(target=write, args=("reads", 60.0), daemon=True).start()
threading.Thread(target=write, args=("changes", 0.2)).start()
leave()
print("goes on")
"""


def test_threads_that_change_end_first_and_those_that_read_do_not_hold_the_end_up() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30.0, check=False)

    assert (answer.returncode, answer.stdout) == (0, "changes\n")


def test_without_such_threads_the_end_is_the_usual_one() -> None:
    program = PROGRAM.replace("daemon=True).start()", "daemon=True)")
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30.0, check=False)

    assert (answer.returncode, answer.stdout) == (0, "changes\ngoes on\n")
