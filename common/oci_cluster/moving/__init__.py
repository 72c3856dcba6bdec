"""Moving over from ADS: the YAML of `ads opctl run`, as settings of ours and the command that launches the same."""
