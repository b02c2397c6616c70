"""The member process: how it starts, which clients it serves, and which request is answered where."""
