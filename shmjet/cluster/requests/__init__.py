"""Requests of clients: how they come in, go on to other members, and are answered; and the access policy."""
