"""The layer that makes, keeps, shows and lands agents' private clones."""
