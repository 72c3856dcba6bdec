"""Storage below the cluster dir: object storage, retries, main's own coordinator."""
