"""Floor 2: messages between processes of one host: `Channel` over Unix sockets, large values in memory files."""
