/* One pool of workers, and the protocol by which they join and leave a job.

   Note [seats]
   A job has `seats` for helpers, and its whole life is in one atomic word, (seats << 32) | inside:
     caller   writes fn, ctx and the shares; stores the seats (the job is open); works; takes the remaining seats away (nobody can join
              any more); waits until inside == 0.
     worker   turns a seat into an inside by compare-and-swap; works; subtracts itself from inside.
   "Works" means: claim block after block with fetch_add, first those of one's own share, then those of the others. Every block is
   claimed by the caller or by somebody inside, so inside == 0 after closing means that all are done. A worker that wakes late finds no
   seat and nobody waits for it: on a crowded machine the caller just does more of the blocks itself.
   A share is a run of neighbouring blocks, and a thread has the same one from call to call: what its core has in the cache and in the
   page tables of the last result is what it reads next. (The sum of the rows of 16 MiB: 376 us; 501 us with one queue for all.)
   Workers that find no seat spin for a while, because a training step comes back every few microseconds and waking a sleeper
   costs tens of them, then sleep. Everybody who joins wakes two more, so nobody has to wake sixty. A caller spins, then naps. */
#define _GNU_SOURCE /* sched_getcpu, affinity */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "system.h"

enum { MAX_THREADS = 1024, STACK_BYTES = 4 << 20 };
enum { WORKER_SPIN_NS = 300 * 1000, CALLER_SPIN_NS = 2 * 1000 * 1000, NAP_NS = 50 * 1000 }; /* a caller has nothing better to do */
#define INSIDE ((uint64_t)UINT32_MAX)
#define ONE_SEAT ((uint64_t)1 << 32)

static struct {
    alignas(64) _Atomic uint64_t word; /* Note [seats] */
    alignas(64) void (*fn)(void *, int64_t);
    void *ctx;
    int64_t nblocks;
    int shares;
    atomic_bool taken;          /* a caller owns the pool */
    atomic_int callers_cpu;
    atomic_int workers, asleep; /* threads that exist; those that wait on `wake` */
    atomic_int threads, cpus;   /* threads 0: as many as CPUs */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct {
        alignas(64) _Atomic int64_t next; /* first block of this share that nobody has claimed */
    } share[MAX_THREADS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

#ifndef __linux__
#define sched_getcpu() (-1)
#endif

/* Tell the CPU that this is a waiting loop: saves power, and speed for the sibling on the same core. */
static void pause_cpu(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` is a no-op on most cores; isb waits about as long as x86's pause */
#endif
}

static bool has_seat(void) { return atomic_load(&pool.word) >= ONE_SEAT; }
static bool all_left(void) { return !(atomic_load(&pool.word) & INSIDE); }

/* A sleeper often wakes on the CPU of the caller that woke it, and holds up the caller itself, there and, having slept there, the next time
   too: products of 200 us took 400 us until Linux moved it. So it moves: to any other CPU that this thread may use, and then may use all. */
static bool is_in_the_way(void) {
    int cpu = sched_getcpu();
    return cpu >= 0 && cpu == atomic_load_explicit(&pool.callers_cpu, memory_order_relaxed);
}
static void step_aside(void) {
#ifdef __linux__
    cpu_set_t allowed, others;
    if (!is_in_the_way() || pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed)) return; /* more than 1024 CPUs: never mind */
    others = allowed;
    CPU_CLR(sched_getcpu(), &others);
    if (CPU_COUNT(&others) && !pthread_setaffinity_np(pthread_self(), sizeof others, &others))
        pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
#endif
}
static bool has_seat_or_is_in_the_way(void) { return has_seat() || is_in_the_way(); }

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Wait for `condition` without sleeping. With more threads than CPUs a spinner keeps the one it waits for off its CPU: no spinning. */
static bool spin_until(bool (*condition)(void), int64_t limit_ns) {
    if (condition()) return true;
    if (fl_get_num_threads() > pool.cpus) return false;
    for (int64_t start = now_ns(), waited = 0; waited < limit_ns; waited = now_ns() - start) {
        for (int i = 0; i < 16; i++, pause_cpu())
            if (condition()) return true;
        if (waited > WORKER_SPIN_NS) sched_yield(); /* so long: perhaps the other one needs this very CPU */
    }
    return false;
}

static int64_t start_of(int share) { return pool.nblocks * share / pool.shares; }

static void work(int self) {
    for (int i = 0; i < pool.shares; i++) {
        int share = (self + i) % pool.shares;
        int64_t end = start_of(share + 1);
        for (int64_t block; (block = atomic_fetch_add(&pool.share[share].next, 1)) < end;) pool.fn(pool.ctx, block);
    }
}

static bool take_seat(void) {
    uint64_t word = atomic_load(&pool.word);
    while (word >= ONE_SEAT)
        if (atomic_compare_exchange_weak(&pool.word, &word, word - ONE_SEAT + 1)) return true;
    return false;
}

static void wake_two(void) {
    uint64_t word = atomic_load(&pool.word);
    int asleep = atomic_load(&pool.asleep), seats = (int)(word / ONE_SEAT);
    int coming = atomic_load(&pool.workers) - asleep - (int)(word & INSIDE); /* they are awake */
    if (asleep == 0 || seats <= coming) return;
    pthread_mutex_lock(&pool.lock);
    for (int i = 0; i < 2 && coming + i < seats; i++) pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker(void *self) {
    for (;;) {
        step_aside();
        while (take_seat()) {
            wake_two();
            work((int)(intptr_t)self);
            atomic_fetch_sub(&pool.word, 1);
            spin_until(has_seat_or_is_in_the_way, WORKER_SPIN_NS);
        }
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.asleep, 1); /* before the test: a caller opens seats first, then counts sleepers */
        while (!has_seat()) pthread_cond_wait(&pool.wake, &pool.lock);
        atomic_fetch_sub(&pool.asleep, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

static void hire(int wanted) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* workers inherit it: signals are for Python's main thread */
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES); /* the default is 8 MiB here, 512 KiB there, 128 KiB elsewhere */
    pthread_t id;
    for (intptr_t self; (self = atomic_load(&pool.workers) + 1) <= wanted; atomic_store(&pool.workers, (int)self))
        if (pthread_create(&id, &attr, worker, (void *)self) != 0) break; /* fewer will do */
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void fl_parallel(void (*fn)(void *ctx, int64_t block), void *ctx, int64_t nblocks) {
    int threads = nblocks > 1 ? fl_get_num_threads() : 1;
    int seats = (int)(nblocks < threads ? nblocks : threads) - 1;
    if (seats <= 0 || atomic_exchange(&pool.taken, true)) {
        for (int64_t block = 0; block < nblocks; block++) fn(ctx, block);
        return;
    }
    if (atomic_load(&pool.workers) < threads - 1) hire(threads - 1);
    pool.fn = fn, pool.ctx = ctx, pool.nblocks = nblocks, pool.shares = seats + 1;
    atomic_store(&pool.callers_cpu, sched_getcpu());
    for (int share = 0; share < pool.shares; share++) atomic_store(&pool.share[share].next, start_of(share));
    atomic_store(&pool.word, (uint64_t)seats * ONE_SEAT);
    wake_two();
    work(0);
    atomic_fetch_and(&pool.word, INSIDE);
    for (bool left = spin_until(all_left, CALLER_SPIN_NS); !left; left = all_left()) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    atomic_store(&pool.taken, false);
}

/* The child of a fork has no workers, but perhaps the traces of a job: it begins anew, lazily, and keeps only the thread count. */
static void begin_anew(void) {
    pool.word = pool.workers = pool.asleep = 0;
    pool.taken = false;
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

/* How many: Python tells at the start, knowing the environment, affinity and the container (limits.py). */
void fl_set_num_threads(int n) { atomic_store(&pool.threads, n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n); }
void fl_set_available_cpus(int n) { atomic_store(&pool.cpus, n); }
int fl_get_num_threads(void) { return pool.threads ? pool.threads : pool.cpus; }

__attribute__((constructor)) static void start(void) {
    fl_set_available_cpus((int)sysconf(_SC_NPROCESSORS_ONLN));
    pthread_atfork(NULL, NULL, begin_anew);
}
