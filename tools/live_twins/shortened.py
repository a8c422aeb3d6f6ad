"""Runs sadvise with another least time of a step back than its ten minutes.

    python -m tools.live_twins.shortened SECONDS serve --config FILE

A job steps back only where the least time and the longest limit of the jobs that it lets ahead fit into the bound on
its delay. With ten minutes the bound would have to be longer than a run of minutes, so that nothing could pass it.
"""

import sys
from unittest import mock

from advisor.cli.main import main
from advisor.planning import ordering

if __name__ == "__main__":
    with mock.patch.object(ordering, "MIN_LEASE_S", float(sys.argv.pop(1))):
        main()
