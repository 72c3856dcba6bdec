"""A stand-in for OCI on this machine, for tests and demonstrations; README.md says what it does and what it guesses."""
