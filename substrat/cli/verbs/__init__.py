"""One file a verb, each with `COMMAND` (its description) and `run` (which runs it); only the verb in use is imported."""
