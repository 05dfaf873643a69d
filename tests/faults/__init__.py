"""Faults on purpose: death, torn writes, full disks and flipped bits at every write of a command.

`make faults` injects them all and writes results/faults.json; a sample of them is a part of the
tests.
"""
