"""Maps and lists on disk: what is written there, and how a store is made from it again.

`writer` is the thread that follows the log of changes to the disk, `restore`
makes a store from the files, `files` has their bytes. docs/design/0030-grid-on-disk.md says why, docs/formats/grid.md
what lies in the folder.
"""
