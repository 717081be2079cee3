"""The daemon: thin shells over kernel, files and processes, and the supervisor that joins them to the core."""
