"""The parts of the soak: a private daemon, its agents and workspaces, what is done to them and what is measured."""
