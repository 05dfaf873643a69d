"""Saved runs: the folder that training leaves behind, and what is asked of it."""
