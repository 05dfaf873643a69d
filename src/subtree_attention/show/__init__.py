"""What people see: on a terminal, as one HTML page, in the browser."""
