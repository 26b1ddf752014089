/* The one worker pool of the process. Plain C: knows blocks and CPUs, nothing about tensors or Python. */
#ifndef FLAMBEAU_THREADS_H
#define FLAMBEAU_THREADS_H

#include <stdint.h>

/* Call fn(ctx, 0), ..., fn(ctx, nblocks - 1), each exactly once, in any order, on any thread; return when all are done.
   The caller works too. A call made inside a block, or while another thread's call holds the pool, runs its blocks
   itself, one after the other: never a deadlock, never more threads than asked for.
   Cut work into blocks by its shape alone, and the result is the same bits with any number of threads. */
void fl_parallel(void (*fn)(void *ctx, int64_t block), void *ctx, int64_t nblocks);

int fl_get_num_threads(void); /* threads one fl_parallel uses, the caller included */
void fl_set_num_threads(int n);
int fl_available_cpus(void); /* CPUs this process may use: affinity and the container's quota, at least 1 */

/* The smallest limit that read_limit finds in this process's control group or one of its parents, or INFINITY.
   `controller` is the version 1 name ("cpu", "memory"); directories of version 2 are asked as well. */
double fl_cgroup_limit(const char *controller, double (*read_limit)(const char *directory));
/* Read up to two numbers that the file begins with; how many there were. */
int fl_read_numbers(const char *directory, const char *file, double numbers[2]);

/* Tell the CPU that this is a waiting loop: saves power, and speed for the sibling on the same core. */
static inline void fl_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` is a no-op on most cores; isb waits about as long as x86's pause */
#endif
}

#endif
