"""`make smoke-gpu`: tries on this machine's GPUs what the project says of GPUs, and writes a report."""
