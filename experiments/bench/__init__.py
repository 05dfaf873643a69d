"""What the operator and an epoch cost, beside what others take for the same.

Read in this order: `comparison.py` (the whole benchmark), `cases.py` (what it runs on),
`attention.py` and `epoch.py` (the versions of the operator and of an epoch), `measure.py` and
`memory.py` (clock and scales), `report.py` (tables, JSON, picture), `scaling.py` (how ours grows).
The contenders are in `experiments.attentions` and `experiments.baselines`.
"""

from experiments.bench.comparison import compare
from experiments.bench.report import Refused, draw, publish
from experiments.bench.scaling import scale

__all__ = ["Refused", "compare", "draw", "publish", "scale"]
