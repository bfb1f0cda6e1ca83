"""The core loads no transformers; hf names load on first use."""

import subprocess
import sys

CODE = """
import sys, looptaps as lt
lt.iterate(lambda x: 0.5 * x, __import__("torch").ones(1, 2, 4), lt.TapsGD(), 3)
hf = lt.hf
assert "attach" in dir(hf) and "transformers" not in sys.modules, "transformers"
assert not {"lm_eval", "triton", "matplotlib"} & set(sys.modules)
assert callable(hf.attach)
import looptaps.hf.attachment
assert callable(hf.attach) and "transformers" in sys.modules
hf.register()
from transformers import AutoConfig
assert AutoConfig.for_model("ouro").total_ut_steps == 4
assert AutoConfig.for_model("huginn_raven").n_embd == 5280
try:
    hf.nothing
except AttributeError:
    print("done")
"""


def test_the_core_loads_no_transformers():
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "done", out.stderr
