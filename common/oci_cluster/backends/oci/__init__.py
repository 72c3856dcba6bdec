"""The backend ``oci``: nodes are Job Runs of OCI Data Science."""
