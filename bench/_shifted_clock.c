/* Loaded before the C library (LD_PRELOAD), gives a process a wall clock that is ahead of the machine's by a number of
 * nanoseconds. The number is the first 8 bytes of the file that SYSID_CLOCK_FILE names, mapped, so that it may change
 * while the process runs. CLOCK_MONOTONIC stays.
 *
 * Whoever waits until a time of the wall clock waits by the shifted one, as the kernel does where a clock is set: a wait
 * that has begun lasts longer where the clock is set back. Where it is set forward, such a wait still ends when it would
 * have ended, while the kernel ends it at once. Timers of the kernel (timerfd, timer_create) are left alone: neither
 * Python nor the middleware uses them with the wall clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define CONDITION_IS_STEADY 2u /* of pthread_cond_t.__wrefs, glibc 2.25 and later */

static const int64_t *shift;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("SYSID_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (mapped != MAP_FAILED)
        shift = mapped;
}

static int64_t ahead(void) { return shift ? __atomic_load_n(shift, __ATOMIC_RELAXED) : 0; }

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

static struct timespec moved(const struct timespec *at, int64_t nanoseconds)
{
    int64_t rest = at->tv_nsec + nanoseconds % SECOND;
    struct timespec result = {at->tv_sec + nanoseconds / SECOND, 0};
    if (rest < 0) {
        rest += SECOND;
        result.tv_sec--;
    } else if (rest >= SECOND) {
        rest -= SECOND;
        result.tv_sec++;
    }
    result.tv_nsec = rest;
    return result;
}

/* The next definition of a function; the version is needed where an old one of the same name exists. */
#define NEXT(name, version)                                                    \
    static __typeof__(&name) next;                                             \
    if (!next) {                                                               \
        void *found = dlvsym(RTLD_NEXT, #name, version);                       \
        next = (__typeof__(&name))(found ? found : dlsym(RTLD_NEXT, #name));   \
    }

int clock_gettime(clockid_t clock, struct timespec *now)
{
    NEXT(clock_gettime, "GLIBC_2.17")
    int status = next(clock, now);
    if (!status && is_wall(clock))
        *now = moved(now, ahead());
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    int status = clock_gettime(CLOCK_REALTIME, &precise);
    (void)zone; /* obsolete */
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return status;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

static int is_reached(const struct timespec *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > at->tv_sec || (now.tv_sec == at->tv_sec && now.tv_nsec >= at->tv_nsec);
}

/* Wait until a time of the shifted clock, which may be set meanwhile. `real` is that time by the machine's clock. */
#define WAIT(at, timed_out, call)                                              \
    for (;;) {                                                                 \
        struct timespec real = moved(at, -ahead());                            \
        int status = call;                                                     \
        if (!(timed_out) || is_reached(at))                                    \
            return status;                                                     \
    }

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict at)
{
    NEXT(pthread_cond_timedwait, "GLIBC_2.3.2")
    if (condition->__data.__wrefs & CONDITION_IS_STEADY)
        return next(condition, mutex, at);
    WAIT(at, status == ETIMEDOUT, next(condition, mutex, &real))
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict at)
{
    NEXT(pthread_cond_clockwait, "GLIBC_2.34")
    if (!is_wall(clock))
        return next(condition, mutex, clock, at);
    WAIT(at, status == ETIMEDOUT, next(condition, mutex, clock, &real))
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict at)
{
    NEXT(sem_timedwait, "GLIBC_2.34")
    WAIT(at, status && errno == ETIMEDOUT, next(semaphore, &real))
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict at)
{
    NEXT(sem_clockwait, "GLIBC_2.34")
    if (!is_wall(clock))
        return next(semaphore, clock, at);
    WAIT(at, status && errno == ETIMEDOUT, next(semaphore, clock, &real))
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict at)
{
    NEXT(pthread_mutex_timedlock, "GLIBC_2.34")
    WAIT(at, status == ETIMEDOUT, next(mutex, &real))
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *at, struct timespec *left)
{
    NEXT(clock_nanosleep, "GLIBC_2.17")
    if (!is_wall(clock) || !(flags & TIMER_ABSTIME))
        return next(clock, flags, at, left);
    WAIT(at, !status, next(clock, flags, &real, left))
}
