"""Endless sources: by schedule, of files that grow, of sockets."""
