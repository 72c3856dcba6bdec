"""Client of a tenancy, and the needs of a launch."""
