"""The parts that both ends of the operator socket share: framing, methods, words, the clients' conversation."""
