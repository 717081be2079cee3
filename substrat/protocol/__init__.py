"""What both ends of the operator socket say: framing, the table of methods, the shapes of objects; no sockets."""
