/* Arrow's string views: 16 bytes a value, its length and either its bytes (up to 12) or where they lie in one of
 * several buffers. No Python in here. */
#ifndef SHMJET_ARROW_STRING_VIEW_H
#define SHMJET_ARROW_STRING_VIEW_H

#include <stdint.h>
#include <string.h>

#define VIEW_SIZE 16
#define VIEW_INLINE 12
/* Bytes that `views_copy` may write beyond the last value. */
#define VIEW_SLACK VIEW_INLINE

typedef struct {
    int32_t length;
    union {
        uint8_t bytes[VIEW_INLINE];
        struct {
            uint8_t prefix[4];
            int32_t buffer;
            int32_t offset;
        } place;
    };
} string_view_t;

typedef struct {
    const uint8_t *views; /* VIEW_SIZE * rows bytes */
    const uint8_t *valid; /* rows bytes, 0 = null, or NULL */
    int64_t rows;
    int64_t buffers;
    const void *const *starts;
    const uint8_t *sizes; /* an int64 for each buffer */
} string_views_t;

static inline string_view_t view_load(const string_views_t *views, int64_t row) {
    string_view_t view;
    memcpy(&view, views->views + VIEW_SIZE * row, sizeof view);
    return view;
}

/* Writes rows + 1 offsets of the values, one after the other; nulls have no bytes. Returns the row of the first view
 * that leaves its buffer, or -1 when all are right. */
static inline int64_t views_ends(const string_views_t *views, int64_t *offsets) {
    int64_t end = 0;
    offsets[0] = 0;
    for (int64_t row = 0; row < views->rows; row++) {
        if (!views->valid || views->valid[row]) {
            string_view_t view = view_load(views, row);
            if (view.length < 0) return row;
            if (view.length > VIEW_INLINE) {
                int64_t size;
                if (view.place.buffer < 0 || view.place.buffer >= views->buffers || view.place.offset < 0) return row;
                memcpy(&size, views->sizes + 8 * view.place.buffer, sizeof size);
                if (!views->starts[view.place.buffer] || (int64_t)view.place.offset + view.length > size) return row;
            }
            end += view.length;
        }
        offsets[row + 1] = end;
    }
    return -1;
}

/* Copies the values to where the offsets say, which `views_ends` wrote; `data` has VIEW_SLACK bytes more than they
 * need. */
static inline void views_copy(const string_views_t *views, const int64_t *offsets, uint8_t *data) {
    for (int64_t row = 0; row < views->rows; row++) {
        if (offsets[row] == offsets[row + 1]) continue;
        string_view_t view = view_load(views, row);
        uint8_t *to = data + offsets[row];
        if (view.length <= VIEW_INLINE)
            memcpy(to, view.bytes, VIEW_INLINE);
        else
            memcpy(to, (const uint8_t *)views->starts[view.place.buffer] + view.place.offset, (size_t)view.length);
    }
}

#endif
