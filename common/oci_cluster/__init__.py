"""Launch, exchange and supervision of training clusters; see ``common/README.md`` for the contract."""
