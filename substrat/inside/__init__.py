"""Programs that the daemon runs in sandboxes; they run with any Python that the system has, and import next to nothing."""
