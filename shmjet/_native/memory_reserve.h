/* Address space that a process keeps for the moment when it has no more. */
#ifndef SHMJET_MEMORY_RESERVE_H
#define SHMJET_MEMORY_RESERVE_H

#include <stdbool.h>
#include <stddef.h>

/* Holds two parts of `size` bytes each. An allocation of Python that finds no memory, if it is a small one, gives the
 * first part up and is repeated; the second is for saying what has happened. Returns whether both are held now.
 * The first call, and no other, must come while the process has one thread. */
bool memory_reserve_hold(size_t size);

/* Gives up both parts. */
void memory_reserve_release(void);

#endif
