"""Tests; the folders mirror `advisor/`."""

import os
import time

# Sentences give times of day, which the goldens hold as they read here.
os.environ["TZ"] = "UTC"
time.tzset()
