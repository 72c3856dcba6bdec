"""The backend ``kubernetes``: nodes are pods of one Indexed Job."""
