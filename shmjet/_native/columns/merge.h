/* Cuts sorted runs into slices that can be sorted one after the other. No Python in here.
 *
 * A slice is all rows up to a pivot, of every run; it is chosen so that no run gives more than `step` rows: of the rows
 * that lie `step` further on in each run, the least is the pivot. Rows that are equal are told apart by their run, so
 * that a slice is bounded even when all rows are equal, and what is cut stays in the order of runs. A cut costs
 * runs * log2(step) comparisons, however long the runs are.
 */
#ifndef SHMJET_MERGE_H
#define SHMJET_MERGE_H

#include "columns/order.h"

typedef struct {
    const order_key_t *keys;
    int64_t rows, at; /* rows before `at` are in slices before */
} merge_run_t;

/* Writes the end of the next slice in each run to `ends` and moves on. Returns the rows of the slice, 0 at the end. */
static inline int64_t merge_cut(merge_run_t *runs, int64_t run_count, int64_t key_count, int64_t step, int64_t *ends) {
    int64_t pivot = -1, pivot_row = 0, total = 0;
    for (int64_t r = 0; r < run_count; r++) {
        ends[r] = runs[r].rows - runs[r].at > step ? runs[r].at + step : runs[r].rows;
        if (ends[r] == runs[r].at) continue;
        if (pivot < 0 || order_compare(runs[r].keys, ends[r] - 1, runs[pivot].keys, pivot_row, key_count, 0) < 0) {
            pivot = r;
            pivot_row = ends[r] - 1;
        }
    }
    for (int64_t r = 0; r < run_count; r++) {
        int64_t low = runs[r].at, high = ends[r];
        while (r != pivot && low < high) {
            int64_t middle = low + (high - low) / 2;
            int order = order_compare(runs[r].keys, middle, runs[pivot].keys, pivot_row, key_count, 0);
            if (order < 0 || (order == 0 && r < pivot))
                low = middle + 1;
            else
                high = middle;
        }
        ends[r] = high;
        total += high - runs[r].at;
        runs[r].at = high;
    }
    return total;
}

#endif
