/* Tensor memory. Freed blocks are kept for the next tensor of about that size, because fresh pages from the system cost
   more than most of the arithmetic done in them. Safe from any thread, and across fork. */
#ifndef FLAMBEAU_POOL_H
#define FLAMBEAU_POOL_H

#include <stddef.h>
#include <stdint.h>

void *fl_alloc(size_t n);        /* n bytes, aligned to 64, contents undefined; NULL when there is no memory */
void fl_free(void *p, size_t n); /* n is the n of fl_alloc */

/* Bytes in use, kept for reuse, and in use at most since the last reset; sizes as rounded up to their class. */
void fl_pool_stats(int64_t *live, int64_t *cached, int64_t *peak);
void fl_pool_reset_peak(void);
void fl_pool_trim(void);             /* give every cached block back to the system */
void fl_pool_set_cap(int64_t bytes); /* cache at most this much; starts as min(memory / 4, 4 GiB) */

#endif
