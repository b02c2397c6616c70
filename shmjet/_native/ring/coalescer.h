/* What one consumer may pass on after hearing watermarks on several inputs: the rules of Jet's WatermarkCoalescer, as
 * `shmjet/core/watermark.py` states them; a test holds the two against each other. No Python, no rings, no clock.
 *
 * It counts the active inputs that are not above the watermark passed on last, so an observation costs the same however
 * many inputs there are; the next minimum is looked for when the count reaches zero. */
#ifndef SHMJET_COALESCER_H
#define SHMJET_COALESCER_H

#include <stdint.h>

#define COALESCER_NONE INT64_MIN /* no watermark yet, and nothing to pass on */
#define COALESCER_IDLE INT64_MAX /* the idle message */

enum { INPUT_ACTIVE = 0, INPUT_IDLE = 1, INPUT_DONE = 2 };
enum { COALESCER_OK = 0, COALESCER_ENDED = -1, COALESCER_FALLS = -2 };

typedef struct {
    int64_t *values; /* the last watermark of each input */
    uint8_t *states;
    int64_t count, live, active, holding;
    int64_t last; /* passed on */
    int64_t top;  /* seen on any input */
    int64_t all_idle, idle_pending;
} coalescer_t;

static inline void coalescer_start(coalescer_t *c, int64_t count) {
    c->count = c->live = c->active = c->holding = count;
    c->last = c->top = COALESCER_NONE;
    c->all_idle = c->idle_pending = 0;
    for (int64_t i = 0; i < count; i++) c->values[i] = COALESCER_NONE, c->states[i] = INPUT_ACTIVE;
}

static inline void coalescer_set(coalescer_t *c, int64_t i, int64_t value, uint8_t state) {
    uint8_t before = c->states[i];
    c->live += (state != INPUT_DONE) - (before != INPUT_DONE);
    c->active += (state == INPUT_ACTIVE) - (before == INPUT_ACTIVE);
    c->holding += (state == INPUT_ACTIVE && value <= c->last) - (before == INPUT_ACTIVE && c->values[i] <= c->last);
    c->values[i] = value;
    c->states[i] = state;
}

/* The active input with the lowest watermark, -1 when none is active; `lowest` is its watermark. */
static inline int64_t coalescer_slowest(const coalescer_t *c, int64_t *lowest) {
    int64_t found = -1;
    for (int64_t i = 0; i < c->count; i++)
        if (c->states[i] == INPUT_ACTIVE && (found < 0 || c->values[i] < *lowest)) {
            found = i;
            *lowest = c->values[i];
        }
    return found;
}

/* What is to be passed on after a change: a watermark, COALESCER_IDLE or COALESCER_NONE. */
static inline int64_t coalescer_check(coalescer_t *c) {
    if (c->all_idle || c->idle_pending || c->live == 0) return COALESCER_NONE;
    if (c->active == 0) {
        if (c->top > c->last) {
            c->idle_pending = 1;
            return c->last = c->top;
        }
        c->all_idle = 1;
        return COALESCER_IDLE;
    }
    if (c->holding) return COALESCER_NONE;
    int64_t lowest = COALESCER_NONE;
    coalescer_slowest(c, &lowest);
    for (int64_t i = 0; i < c->count; i++) c->holding += c->states[i] == INPUT_ACTIVE && c->values[i] == lowest;
    return c->last = lowest;
}

static inline int coalescer_event(coalescer_t *c, int64_t i) {
    if (c->states[i] == INPUT_ACTIVE && !c->all_idle) return COALESCER_OK;
    if (c->states[i] == INPUT_DONE) return COALESCER_ENDED;
    coalescer_set(c, i, c->values[i], INPUT_ACTIVE);
    c->all_idle = c->idle_pending = 0;
    return COALESCER_OK;
}

/* `out` is what coalescer_check() says. */
static inline int coalescer_watermark(coalescer_t *c, int64_t i, int64_t timestamp, int64_t *out) {
    if (c->states[i] == INPUT_DONE) return COALESCER_ENDED;
    if (timestamp == COALESCER_IDLE) {
        coalescer_set(c, i, c->values[i], INPUT_IDLE);
    } else {
        if (timestamp <= c->values[i]) return COALESCER_FALLS;
        coalescer_event(c, i);
        coalescer_set(c, i, timestamp, INPUT_ACTIVE);
        if (timestamp > c->top) c->top = timestamp;
    }
    *out = coalescer_check(c);
    return COALESCER_OK;
}

static inline int coalescer_done(coalescer_t *c, int64_t i, int64_t *out) {
    if (c->states[i] == INPUT_DONE) return COALESCER_ENDED;
    coalescer_set(c, i, c->values[i], INPUT_DONE);
    *out = coalescer_check(c);
    return COALESCER_OK;
}

/* The idle message when it has to follow the watermark passed on just before. */
static inline int64_t coalescer_pending(coalescer_t *c) {
    if (!c->idle_pending) return COALESCER_NONE;
    c->idle_pending = 0;
    c->all_idle = 1;
    return COALESCER_IDLE;
}

#endif
