"""The experiments of the paper, measured again."""
