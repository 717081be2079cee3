"""The daemon's durable state: database, event journal, archives, and which file is where."""
