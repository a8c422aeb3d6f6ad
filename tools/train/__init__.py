"""Programs that train and judge learned policies; never installed."""

from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).parent.parent
