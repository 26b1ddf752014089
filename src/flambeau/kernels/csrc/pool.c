/* Size classes with a list of free blocks each, under one spin lock. Too much cached: the oldest blocks go first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise */
#endif
#include "pool.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "threads.h"

/* Class sizes: 64 bytes, then four steps to each doubling (5/4, 6/4, 7/4, 8/4 of a power of two) up to 2^46. */
enum { SMALLEST = 64, MOST = 46, CLASSES = 4 * (MOST - 6) + 1 };
enum { MAPPED = 1 << 20 };     /* from here on blocks are mapped: to free them is to return their pages */
enum { HUGE_PAGES = 4 << 20 }; /* and from here on with huge pages: to fill 64 MiB of new memory takes 12 ms, not 30 */

typedef struct Block { /* written into the first bytes of a free block */
    struct Block *newer, *older;
    uint64_t age; /* what `clock` was when it was freed */
    int64_t size;
} Block;

static struct {
    atomic_flag lock;
    Block *newest[CLASSES], *oldest[CLASSES];
    uint64_t clock;
    int64_t live, cached, peak;
    int64_t cap;    /* cache at most this much */
    int64_t memory; /* and keep live + cached below this */
} pool = {.lock = ATOMIC_FLAG_INIT};

static void lock(void) {
    for (int tries = 1; atomic_flag_test_and_set_explicit(&pool.lock, memory_order_acquire); tries++)
        if (tries % 64) fl_pause();
        else sched_yield(); /* whoever holds it may have lost its CPU */
}
static void unlock(void) { atomic_flag_clear_explicit(&pool.lock, memory_order_release); }

/* Round *n up to its class size; return the class. */
static int size_class(int64_t *n) {
    if (*n <= SMALLEST) return *n = SMALLEST, 0;
    int64_t last = ((*n + 63) & ~(int64_t)63) - 1;
    int power = 63 - __builtin_clzll((unsigned long long)last); /* 2^power <= last < 2^(power + 1) */
    int64_t quarter = last >> (power - 2);                      /* 4, 5, 6 or 7 whole quarters of 2^power */
    *n = (quarter + 1) << (power - 2);
    return 4 * (power - 6) + (int)quarter - 3;
}

static void *from_system(int64_t size) {
    void *p = NULL;
    if (size < MAPPED) return posix_memalign(&p, 64, (size_t)size) == 0 ? p : NULL;
    p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_PAGES) madvise(p, (size_t)size, MADV_HUGEPAGE);
#endif
    return p;
}

static void to_system(Block *chain) {
    for (Block *block; (block = chain);) {
        chain = block->older;
        if (block->size < MAPPED) free(block);
        else munmap(block, (size_t)block->size);
    }
}

/* Take the oldest free blocks from their lists until at most `keep` bytes are cached. */
static Block *evict(int64_t keep) {
    Block *chain = NULL;
    while (pool.cached > 0 && pool.cached > keep) {
        int from = -1;
        for (int c = 0; c < CLASSES; c++)
            if (pool.oldest[c] && (from < 0 || pool.oldest[c]->age < pool.oldest[from]->age)) from = c;
        Block *block = pool.oldest[from];
        pool.oldest[from] = block->newer;
        *(block->newer ? &block->newer->older : &pool.newest[from]) = NULL;
        pool.cached -= block->size;
        block->older = chain, chain = block;
    }
    return chain;
}

/* Unlock, then give the evicted blocks back: that is slow. */
static void unlock_and_evict(int64_t keep) {
    Block *chain = pool.cached > keep ? evict(keep) : NULL;
    unlock();
    to_system(chain);
}

static void count_live(int64_t n) {
    pool.live += n;
    if (pool.live > pool.peak) pool.peak = pool.live;
}

static void *alloc_fresh(int64_t n) {
    lock();
    unlock_and_evict(pool.memory - pool.live - n); /* a control group does not refuse, it kills */
    void *p = from_system(n);
    if (!p) fl_pool_trim(), p = from_system(n);
    if (!p) return NULL;
    lock();
    count_live(n);
    unlock();
    return p;
}

void *fl_alloc(size_t bytes) {
    if (bytes > (size_t)1 << MOST) return NULL;
    int64_t n = (int64_t)bytes;
    int class = size_class(&n);
    lock();
    Block *block = pool.newest[class]; /* the newest is the likeliest to be in the CPU's cache still */
    if (block) {
        pool.newest[class] = block->older;
        *(block->older ? &block->older->newer : &pool.oldest[class]) = NULL;
        pool.cached -= n;
        count_live(n);
    }
    unlock();
    return block ? block : alloc_fresh(n);
}

void fl_free(void *p, size_t bytes) {
    if (!p) return;
    int64_t n = (int64_t)bytes;
    int class = size_class(&n);
    Block *block = p;
    lock();
    *block = (Block){.older = pool.newest[class], .age = pool.clock++, .size = n};
    *(block->older ? &block->older->newer : &pool.oldest[class]) = block;
    pool.newest[class] = block;
    pool.live -= n, pool.cached += n;
    unlock_and_evict(pool.cap);
}

void fl_pool_trim(void) {
    lock();
    unlock_and_evict(0);
}

void fl_pool_set_cap(int64_t bytes) {
    lock();
    pool.cap = bytes;
    unlock_and_evict(bytes);
}

void fl_pool_stats(int64_t *live, int64_t *cached, int64_t *peak) {
    lock();
    *live = pool.live, *cached = pool.cached, *peak = pool.peak;
    unlock();
}

void fl_pool_reset_peak(void) {
    lock();
    pool.peak = pool.live;
    unlock();
}

static double memory_limit(const char *directory) {
    double n[2]; /* where there is no limit, version 2 writes "max" and version 1 a number near 2^63 */
    bool found = fl_read_numbers(directory, "memory.max", n) || fl_read_numbers(directory, "memory.limit_in_bytes", n);
    return found ? n[0] : INFINITY;
}

__attribute__((constructor)) static void start(void) {
    double installed = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double memory = fmin(installed, fl_cgroup_limit("memory", memory_limit));
    pool.memory = (int64_t)(memory * 7 / 8);
    pool.cap = (int64_t)fmin(memory / 4, 4.0 * (1 << 30));
    pthread_atfork(lock, unlock, unlock); /* the lists are whole at the moment of a fork */
}
