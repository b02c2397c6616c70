"""The processes of a member and their shared memory: workers, carriers, the fork server, arenas."""
