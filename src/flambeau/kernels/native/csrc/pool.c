/* Tensor memory: size classes with a stack of free blocks each, under one lock. Freed blocks are kept for the next tensor of about
   that size, because fresh pages from the system cost more than most of the arithmetic done in them. */
#define _GNU_SOURCE /* madvise */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "system.h"

#ifdef __SANITIZE_ADDRESS__ /* what lies in free blocks, or behind what was asked for, is out of bounds */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

/* Class sizes: 64 bytes, then four steps to each doubling (5/4, 6/4, 7/4, 8/4 of a power of two) up to 2^46. */
enum { SMALLEST = 64, MOST = 46, CLASSES = 4 * (MOST - 6) + 1 };
enum { MAPPED = 1 << 20 };     /* from here on blocks are mapped: to free them is to return their pages */
enum { ALWAYS = 256 << 20 };    /* this much is kept; and where more is taken, live and free blocks together are an eighth more than ever was live */
enum { HUGE_PAGES = 4 << 20 }; /* and from here on with huge pages: to fill 64 MiB of new memory takes 12 ms, not 30 */

typedef struct Block { /* written into the first bytes of a free block */
    struct Block *next;
    int64_t size;
} Block;

static struct {
    pthread_mutex_t lock;
    Block *newest[CLASSES];  /* the newest is the likeliest to be in the CPU's cache still */
    uint64_t freed[CLASSES]; /* what `clock` was when a block of this class was freed last */
    uint64_t clock;
    int64_t live, cached, peak;
    int64_t cap, memory; /* cache at most `cap`, and keep live + cached below `memory` */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&pool.lock); }
static void unlock(void) { pthread_mutex_unlock(&pool.lock); }

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

static Block *pop(int class) {
    Block *block = pool.newest[class];
    if (block) pool.newest[class] = block->next, pool.cached -= block->size;
    return block;
}

/* Unlock with at most `keep` bytes cached: blocks of the sizes that nobody freed for the longest time go back to the system,
   after unlocking, because that is slow. */
static void unlock_keeping(int64_t keep) {
    Block *gone = NULL;
    while (pool.cached > 0 && pool.cached > keep) {
        int from = -1;
        for (int c = 0; c < CLASSES; c++)
            if (pool.newest[c] && (from < 0 || pool.freed[c] < pool.freed[from])) from = c;
        Block *block = pop(from);
        block->next = gone, gone = block;
    }
    unlock();
    for (Block *block; (block = gone);) {
        gone = block->next;
        ASAN_UNPOISON_MEMORY_REGION(block, (size_t)block->size);
        if (block->size < MAPPED) free(block);
        else munmap(block, (size_t)block->size);
    }
}

void *fl_alloc(size_t bytes) {
    if (bytes > (size_t)1 << MOST) return NULL;
    int64_t n = (int64_t)bytes;
    int class = size_class(&n);
    lock();
    void *p = pop(class);
    if (!p) { /* a control group does not refuse, it kills; and what a program holds has to do with what it needs */
        int64_t most = pool.live + n > pool.peak ? pool.live + n : pool.peak, spare = most + most / 8 - pool.live - n;
        if (spare < ALWAYS) spare = ALWAYS;
        unlock_keeping(spare < pool.memory - pool.live - n ? spare : pool.memory - pool.live - n);
        p = from_system(n);
        if (!p) fl_pool_trim(), p = from_system(n);
        if (!p) return NULL;
        lock();
    }
    pool.live += n;
    if (pool.live > pool.peak) pool.peak = pool.live;
    unlock();
    ASAN_UNPOISON_MEMORY_REGION(p, (size_t)n);
    ASAN_POISON_MEMORY_REGION((char *)p + bytes, (size_t)n - bytes);
    return p;
}

void fl_free(void *p, size_t bytes) {
    if (!p) return;
    int64_t n = (int64_t)bytes;
    int class = size_class(&n);
    ASAN_UNPOISON_MEMORY_REGION(p, (size_t)n);
    ASAN_POISON_MEMORY_REGION((char *)p + sizeof(Block), (size_t)n - sizeof(Block));
    lock();
    *(Block *)p = (Block){pool.newest[class], n};
    pool.newest[class] = p, pool.freed[class] = pool.clock++;
    pool.live -= n, pool.cached += n;
    unlock_keeping(pool.cap);
}

bool fl_is_cached(size_t bytes) {
    int64_t n = (int64_t)bytes;
    if (bytes > (size_t)1 << MOST) return false;
    int class = size_class(&n);
    lock();
    bool found = pool.newest[class];
    return unlock(), found;
}

void fl_pool_trim(void) { lock(), unlock_keeping(0); }

void fl_pool_set_memory(double bytes) {
    lock();
    pool.memory = (int64_t)(bytes * 7 / 8);
    pool.cap = (int64_t)(bytes / 4 < 0x1p32 ? bytes / 4 : 0x1p32);
    unlock_keeping(pool.cap);
}

void fl_pool_stats(int64_t *live, int64_t *cached, int64_t *peak, bool reset_peak) {
    lock();
    *live = pool.live, *cached = pool.cached, *peak = pool.peak;
    if (reset_peak) pool.peak = pool.live;
    unlock();
}

__attribute__((constructor)) static void start(void) {
    fl_pool_set_memory((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    pthread_atfork(lock, unlock, unlock); /* the lists are whole at the moment of a fork */
}
