/* Between a process and its files: what it does to them is counted and recorded, and can be made to fail.
 *
 * Loaded with LD_PRELOAD (shim.py). Only files below TORTURE_ROOT are looked at, and no shared memory of
 * SQLite (*-shm), which means nothing after a crash. Each operation gets a number. It is done and recorded
 * under one lock, so the record has the order in which things have happened; only a sync is not waited for
 * under the lock: it is recorded when it begins and when it has ended.
 *
 *     record   kind u8 | 3 bytes of nothing | pid i32 | fd i32 | first length u32 | second length u32
 *              a i64 | b i64, then as many bytes of a first and a second text (paths, or data)
 *
 *     o  open               a: flags, b: 1 if it made the file     path
 *     w  write              a: position, b: 1 if it syncs, too     data
 *     t  truncate           a: size
 *     b  a sync begins
 *     e  ... and has ended  a: number of the 'b' or 'w'
 *     r  rename             path, path
 *     l  link               path, path
 *     u  unlink             path
 *     m  mkdir              path
 *     k  rmdir              path
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_FILES 65536
#define DSYNC 0x2 /* RWF_DSYNC */

/* One page that processes and whoever watches them share; shim.py has the same layout. */
struct shared {
    uint64_t operations;  /* so many have been recorded */
    uint64_t fail_from;   /* operations from this number on fail */
    uint64_t fail_count;  /* ... so many of them */
    uint64_t failed;      /* so many have failed */
    uint64_t die_at;      /* the process ends instead of doing this one */
    int64_t clock_shift;  /* nanoseconds that the clock is ahead */
    uint64_t sync_delay;  /* microseconds that each sync takes longer */
    int32_t error;        /* what a failing operation fails with */
    int32_t sync_error;
    uint8_t failing[128]; /* kinds that can fail, by their letter */
    uint32_t ready;
    pthread_mutex_t lock;
};

struct record {
    uint8_t kind, nothing[3];
    int32_t pid, fd;
    uint32_t first, second;
    int64_t a, b;
} __attribute__((packed));

static struct shared *shared;
static const char *root;
static size_t root_length;
static int trace = -1;
static unsigned char known[MOST_FILES];

#define REAL(type, name, ...) \
    static type (*real_##name)(__VA_ARGS__); \
    if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *page = getenv("TORTURE_SHARED"), *file = getenv("TORTURE_TRACE");
    root = getenv("TORTURE_ROOT");
    if (!page || !root) return;
    root_length = strlen(root);
    REAL(int, open, const char *, int, ...);
    int fd = real_open(page, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    struct shared *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    if (file) trace = real_open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (!mapped->ready) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST); /* whoever holds it may be killed */
        pthread_mutex_init(&mapped->lock, &how);
        mapped->ready = 1;
    }
    shared = mapped;
}

static void enter(void) {
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}

static void leave(void) { pthread_mutex_unlock(&shared->lock); }

/* Whether the next operation, of this kind, is to fail; sets errno. The lock is held, and if so let go of. */
static int fails(char kind) {
    uint64_t number = shared->operations;
    if (shared->die_at && number >= shared->die_at) {
        shared->die_at = 0;
        kill(getpid(), SIGKILL);
        pause();
    }
    if (!shared->failing[(int)kind] || number < shared->fail_from || !shared->fail_count) return 0;
    shared->fail_count--;
    shared->failed++;
    leave();
    errno = kind == 'b' || kind == 't' ? shared->sync_error : shared->error;
    return 1;
}

/* The lock is held. Returns the number. */
static uint64_t record(char kind, int fd, int64_t a, int64_t b, const struct iovec *first, int parts,
                       const char *second) {
    if (trace >= 0) {
        struct record head = {.kind = kind, .pid = getpid(), .fd = fd, .a = a, .b = b};
        for (int i = 0; i < parts; i++) head.first += first[i].iov_len;
        head.second = second ? strlen(second) : 0;
        REAL(ssize_t, writev, int, const struct iovec *, int);
        struct iovec all = {&head, sizeof head};
        real_writev(trace, &all, 1);
        if (parts) real_writev(trace, first, parts);
        if (head.second) real_writev(trace, &(struct iovec){(void *)second, head.second}, 1);
    }
    return shared->operations++;
}

static void record_path(char kind, int fd, int64_t a, int64_t b, const char *first, const char *second) {
    record(kind, fd, a, b, &(struct iovec){(void *)first, strlen(first)}, 1, second);
}

/* The absolute path, if it is one of ours. */
static const char *ours(int directory, const char *path, char *buffer) {
    if (!shared || !path) return NULL;
    if (path[0] == '/') {
        snprintf(buffer, PATH_MAX, "%s", path);
    } else if (directory == AT_FDCWD) {
        if (!getcwd(buffer, PATH_MAX)) return NULL;
        size_t length = strlen(buffer);
        snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, buffer, PATH_MAX - 1);
        if (length < 0) return NULL;
        snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    }
    size_t length = strlen(buffer);
    if (strncmp(buffer, root, root_length) || (buffer[root_length] && buffer[root_length] != '/')) return NULL;
    if (length > 4 && !strcmp(buffer + length - 4, "-shm")) return NULL;
    return buffer;
}

static int is_ours(int fd) { return shared && fd >= 0 && fd < MOST_FILES && known[fd]; }

/* Opening */

static int do_open(int directory, const char *path, int flags, mode_t mode) {
    REAL(int, openat, int, const char *, int, ...);
    char buffer[PATH_MAX];
    const char *full = ours(directory, path, buffer);
    if (!full || (flags & O_PATH)) return real_openat(directory, path, flags, mode);
    enter();
    struct stat found;
    int makes = (flags & O_CREAT) && stat(full, &found) != 0;
    if ((makes || (flags & O_TRUNC)) && fails('o')) return -1;
    int fd = real_openat(directory, path, flags, mode);
    int error = errno;
    if (fd >= 0 && fd < MOST_FILES) {
        known[fd] = 1;
        record_path('o', fd, flags, makes, full, NULL);
    }
    leave();
    errno = error;
    return fd;
}

#define OPEN(name, directory, ...) \
    int name(__VA_ARGS__, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return do_open(directory, path, flags, mode); \
    }
OPEN(open, AT_FDCWD, const char *path)
OPEN(open64, AT_FDCWD, const char *path)
OPEN(openat, directory, int directory, const char *path)
OPEN(openat64, directory, int directory, const char *path)

int close(int fd) {
    REAL(int, close, int);
    if (!is_ours(fd)) return real_close(fd);
    enter(); /* or the number could be given out again before it is forgotten */
    known[fd] = 0;
    int result = real_close(fd), error = errno;
    leave();
    errno = error;
    return result;
}

/* Writing */

static ssize_t do_write(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    REAL(ssize_t, pwritev2, int, const struct iovec *, int, off_t, int);
    enter();
    if (fails('w')) return -1;
    off_t at = position >= 0 ? position : lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t written = position >= 0 ? real_pwritev2(fd, parts, count, position, flags & ~DSYNC)
                                    : real_writev(fd, parts, count);
    int error = errno;
    uint64_t number = 0;
    if (written > 0) {
        struct iovec done[count];
        int used = 0;
        for (size_t left = written; left; used++) {
            done[used] = parts[used];
            if (done[used].iov_len > left) done[used].iov_len = left;
            left -= done[used].iov_len;
        }
        number = record('w', fd, at, !!(flags & DSYNC), done, used, NULL);
    }
    leave();
    if (written > 0 && (flags & DSYNC)) {
        REAL(int, fdatasync, int);
        if (shared->sync_delay) usleep(shared->sync_delay);
        real_fdatasync(fd);
        enter();
        if (fails('b')) return -1;
        record('e', fd, number, 0, NULL, 0, NULL);
        leave();
    }
    errno = error;
    return written;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (!is_ours(fd)) return real_write(fd, data, size);
    return do_write(fd, &(struct iovec){(void *)data, size}, 1, -1, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return is_ours(fd) ? do_write(fd, parts, count, -1, 0) : real_writev(fd, parts, count);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t position) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    if (!is_ours(fd)) return real_pwrite(fd, data, size, position);
    return do_write(fd, &(struct iovec){(void *)data, size}, 1, position, 0);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t position) { return pwrite(fd, data, size, position); }

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    REAL(ssize_t, pwritev2, int, const struct iovec *, int, off_t, int);
    if (!is_ours(fd)) return real_pwritev2(fd, parts, count, position, flags);
    return do_write(fd, parts, count, position, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    return pwritev2(fd, parts, count, position, flags);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position) {
    return pwritev2(fd, parts, count, position, 0);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t position) {
    return pwritev2(fd, parts, count, position, 0);
}

int ftruncate(int fd, off_t size) {
    REAL(int, ftruncate, int, off_t);
    if (!is_ours(fd)) return real_ftruncate(fd, size);
    enter();
    if (fails('t')) return -1;
    int result = real_ftruncate(fd, size), error = errno;
    if (!result) record('t', fd, size, 0, NULL, 0, NULL);
    leave();
    errno = error;
    return result;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

/* A file that has been made longer is as one that was truncated to more: nobody relies on the blocks. */
int fallocate(int fd, int mode, off_t position, off_t size) {
    struct stat found;
    REAL(int, fallocate, int, int, off_t, off_t);
    if (!is_ours(fd)) return real_fallocate(fd, mode, position, size);
    if (mode || fstat(fd, &found)) { errno = EOPNOTSUPP; return -1; }
    return position + size > found.st_size ? ftruncate(fd, position + size) : 0;
}
int fallocate64(int fd, int mode, off_t position, off_t size) { return fallocate(fd, mode, position, size); }
int posix_fallocate(int fd, off_t position, off_t size) { return fallocate(fd, 0, position, size) ? errno : 0; }
int posix_fallocate64(int fd, off_t position, off_t size) { return posix_fallocate(fd, position, size); }

/* Syncing */

static int do_sync(int fd, int (*sync)(int)) {
    if (!is_ours(fd)) return sync(fd);
    enter();
    if (fails('b')) return -1;
    uint64_t number = record('b', fd, 0, 0, NULL, 0, NULL);
    leave();
    if (shared->sync_delay) usleep(shared->sync_delay);
    int result = sync(fd), error = errno;
    enter();
    if (!result) record('e', fd, number, 0, NULL, 0, NULL);
    leave();
    errno = error;
    return result;
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return do_sync(fd, real_fsync);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return do_sync(fd, real_fdatasync);
}

/* Names */

static int do_names(char kind, const char *first, const char *second, int (*act)(void *), void *what) {
    enter();
    if (fails(kind)) return -1;
    int result = act(what), error = errno;
    if (!result) record_path(kind, -1, 0, 0, first, second);
    leave();
    errno = error;
    return result;
}

struct names { int from_directory, to_directory, flags; const char *from, *to; mode_t mode; };

static int act_rename(void *given) {
    REAL(int, renameat, int, const char *, int, const char *);
    struct names *it = given;
    return real_renameat(it->from_directory, it->from, it->to_directory, it->to);
}
static int act_link(void *given) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    struct names *it = given;
    return real_linkat(it->from_directory, it->from, it->to_directory, it->to, it->flags);
}
static int act_unlink(void *given) {
    REAL(int, unlinkat, int, const char *, int);
    struct names *it = given;
    return real_unlinkat(it->from_directory, it->from, it->flags);
}
static int act_mkdir(void *given) {
    REAL(int, mkdirat, int, const char *, mode_t);
    struct names *it = given;
    return real_mkdirat(it->from_directory, it->from, it->mode);
}

static int two(char kind, struct names it, int (*act)(void *)) {
    char one[PATH_MAX], other[PATH_MAX];
    const char *from = ours(it.from_directory, it.from, one), *to = ours(it.to_directory, it.to, other);
    return from && to ? do_names(kind, from, to, act, &it) : act(&it);
}

static int one(char kind, struct names it, int (*act)(void *)) {
    char buffer[PATH_MAX];
    const char *path = ours(it.from_directory, it.from, buffer);
    return path ? do_names(kind, path, NULL, act, &it) : act(&it);
}

int renameat(int d, const char *from, int e, const char *to) {
    return two('r', (struct names){d, e, 0, from, to, 0}, act_rename);
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
int linkat(int d, const char *from, int e, const char *to, int flags) {
    return two('l', (struct names){d, e, flags, from, to, 0}, act_link);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int d, const char *path, int flags) {
    return one(flags & AT_REMOVEDIR ? 'k' : 'u', (struct names){d, 0, flags, path, NULL, 0}, act_unlink);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int d, const char *path, mode_t mode) {
    return one('m', (struct names){d, 0, 0, path, NULL, mode}, act_mkdir);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* The clock */

static void shift(struct timespec *at) {
    int64_t moved = at->tv_nsec + shared->clock_shift % 1000000000;
    at->tv_sec += shared->clock_shift / 1000000000 + (moved >= 1000000000) - (moved < 0);
    at->tv_nsec = (moved + 1000000000) % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real_clock_gettime(clock, at);
    if (!result && shared && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at);
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
