"""What a tenancy has, and what a launch needs of it."""
