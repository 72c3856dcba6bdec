"""What ``make build push`` runs, what runs inside a build, and the record of what was pushed."""
