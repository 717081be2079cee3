"""One file a verb, each with `COMMAND` (what it takes) and `run` (what it does); only the verb in use is imported."""
