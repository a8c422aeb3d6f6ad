"""What the inference library would tell its maker."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
OPENED = """
import sys
from advisor.predict.onnx_model import OnnxModel
try:
    OnnxModel(open(sys.argv[1], "rb").read(), name="any", columns=1, outputs=1)
except Exception as err:
    print(err)
import onnxruntime
assert onnxruntime.get_available_providers()
"""


def test_opening_a_model_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    model = next((ROOT / "models").rglob("*.onnx"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}

    subprocess.run(
        [sys.executable, "-c", OPENED, str(model)],
        env={**kept, "HOME": str(tmp_path)},
        check=True,
        cwd=ROOT,
        timeout=60,
    )

    assert list(tmp_path.rglob("*")) == []
