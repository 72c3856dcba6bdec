"""`make smoke-oci`: runs the cheapest sequence in a real tenancy that tells which guesses about OCI are right."""
