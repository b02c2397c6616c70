"""The member process: how it starts, whom it serves, and which request is answered where."""
