"""What is learnt: target, loss, metric and calibration."""
