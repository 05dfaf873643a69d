"""Import this first, and Numba is not there.

A process takes longer to load its kernels than for all else here, and what is written is the same.
"""

import sys

sys.modules["numba"] = None  # type: ignore[assignment]
