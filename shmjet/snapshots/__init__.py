"""Snapshots as files: pieces of saved state in chunk files, and manifests that say which pieces make up a snapshot."""
