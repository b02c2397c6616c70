"""Batches from and for other libraries, by Arrow's C data interface and its capsules, without pyarrow.

`fields` says which types of Arrow are which kinds of columns, `reading` and `writing` have the layouts, `nested` those
of lists and structs, `streams` is what `Batch` calls. Loaded with the first exchange only. The C part,
`shmjet._native._arrow`, has the memory and the lifetimes and knows no types.
"""
