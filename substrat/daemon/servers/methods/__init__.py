"""The methods of the operator socket: each a Struct of its parameters that performs itself, one file a group."""
