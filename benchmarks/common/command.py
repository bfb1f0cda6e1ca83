"""How this script was called."""

from __future__ import annotations

import sys
from pathlib import Path


def command() -> str:
    """The command line, as a record shows it: of paths the last part alone."""
    script, *arguments = sys.argv
    return " ".join([f"python benchmarks/{Path(script).stem}.py", *(text.rpartition("/")[2] for text in arguments)])
