/* The structures of Arrow's C data interface and C stream interface, as the specification lays them out
 * (https://arrow.apache.org/docs/format/CDataInterface.html). No Python in here.
 *
 * Each has a `release` callback that its owner calls once; NULL means released. Moving a structure is copying it and
 * setting the source's `release` to NULL.
 */
#ifndef SHMJET_ARROW_ABI_H
#define SHMJET_ARROW_ABI_H

#include <stdint.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

/* Deeper structures are refused: reading them recurses. */
#define ARROW_DEEPEST 64
/* So many columns, fields or buffers are taken for a mistake of the producer. */
#define ARROW_MOST_CHILDREN (INT64_C(1) << 24)

#endif
