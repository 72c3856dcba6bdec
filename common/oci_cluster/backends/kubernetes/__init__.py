"""The backend ``kubernetes``: nodes are the pods of an Indexed Job."""
