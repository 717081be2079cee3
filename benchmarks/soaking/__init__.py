"""The parts of the soak: a private daemon, its agents and workspaces, the random requests and the figures."""
