"""What can be seen on a PNG file."""

from pathlib import Path

import numpy as np


class Picture:
    """The pixels of a picture, [height, width, 3] from 0 to 255, over white."""

    def __init__(self, path: Path) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.image import imread

        self._rgb = to_rgb
        read = imread(path).astype(float)
        alpha = read[..., 3:] if read.shape[-1] == 4 else 1.0
        self.pixels = np.rint(255 * (read[..., :3] * alpha + 1 - alpha)).astype(int)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width, _ = self.pixels.shape
        return width, height

    @property
    def share_of_paper(self) -> float:
        """How much of it is white: all, if nothing was drawn."""
        return float((self.pixels == 255).all(-1).mean())

    def count(self, colour: str) -> int:
        """Pixels of a colour, give or take a level."""
        wanted = np.rint(255 * np.array(self._rgb(colour)))
        return int((np.abs(self.pixels - wanted) <= 1).all(-1).sum())

    def has(self, *colours: str) -> bool:
        """Whether each colour is there, and not only at the rims of something else."""
        return all(self.count(colour) >= 20 for colour in colours)
