"""Floor 2: shared-memory arenas, rings, lanes and frames — how lists of items get from one process to another.

This floor must not know of processors or jobs: a lane carries lists of items and marks, in order, and says how much
it accepted. The C code is in `shmjet._native`; here are the memory (`arena`, `slab`), the formats (`frames`,
`batch_frames`), what cannot be columns (`pickling`), and the two kinds of lane behind one interface (`lane`,
`local_lane`, `ring_writer`, `ring_reader`).
"""
