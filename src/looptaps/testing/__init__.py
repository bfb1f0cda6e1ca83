"""What a controller must keep, as a table that anybody's controller can be held against, and toy cores to loop.

>>> import looptaps as lt
>>> report = lt.testing.check_controller(lt.TapsGD(), promises=["range", "warmup"])
>>> print(report)
promise  scope     result
range    sample    kept
range    token     kept
range    segments  kept
warmup   sample    kept
warmup   token     kept
warmup   segments  kept
"""

from looptaps.testing.contract import ContractBroken, Report, Row, check_controller, contract
from looptaps.testing.cores import AffineCore, WaveCore, updates

__all__ = [
    "AffineCore",
    "ContractBroken",
    "Report",
    "Row",
    "WaveCore",
    "check_controller",
    "contract",
    "updates",
]
