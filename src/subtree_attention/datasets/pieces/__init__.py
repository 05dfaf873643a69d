"""A graph in pieces: tables in parts, of which every process reads some and no process all."""

from .piece import Piece
from .read import read_piece

__all__ = ["Piece", "read_piece"]
