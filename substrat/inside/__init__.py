"""Programs that the daemon starts in sandboxes or beside them, with any Python that the system has; they import little."""
