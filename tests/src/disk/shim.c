/* Stands between a process and its disk (LD_PRELOAD): writes down what it does to the files below a folder, and fails
 * calls on demand. For tests only; the server that is tested is the real one, SQLite in it included.
 *
 * QUIVER_DISK_ROOT     the folder, absolute
 * QUIVER_DISK_TRACE    a file to which every change is appended (see `trace.rs` for its form); optional
 * QUIVER_DISK_CONTROL  a file of `struct control`, shared with the test, which arms faults in it; optional
 *
 * A change and its line in the trace are one step under a lock, so that the order of the trace is the order on disk. A
 * sync is two lines, before and after, outside of the lock: what others write meanwhile is not promised by it. A process
 * that dies within that step would leave half a line, or a change that no line tells: `abort` waits for the lock, and who
 * kills from outside looks at `busy` of the control page first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum op { ROOT = 1, CREATE, WRITE, TRUNCATE, SYNC_BEGIN, SYNC_END, SYNC_FAILED, RENAME, UNLINK, MKDIR, RMDIR, LINK };
enum call { CALL_WRITE, CALL_SYNC, CALL_RENAME, CALL_READ, CALL_CREATE, CALL_UNLINK, CALLS };
/* Kinds of files, as bits. */
enum area { AREA_WAL = 1, AREA_CATALOG = 2, AREA_STORE = 4, AREA_OTHER = 8 };

struct head {
    uint32_t op, path, other, data;
    uint64_t node, place;
};

struct control {
    uint32_t areas;   /* kinds of files that fail; 0: none */
    uint32_t call;    /* enum call */
    int32_t error;    /* errno */
    uint32_t fired;   /* calls that failed */
    int64_t before;   /* calls that still succeed */
    int64_t failing;  /* calls that fail then */
    uint64_t counts[CALLS][4];
    uint64_t busy;    /* a change is made and not yet written down: no moment to be killed at */
};

#define FDS 65536
static unsigned char areas[FDS];
static char root[4096];
static size_t root_len;
static int trace = -1;
static struct control *control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t tokens;

#define REAL(result, name, ...)                                                                                        \
    static result (*real_##name)(__VA_ARGS__);                                                                         \
    if (!real_##name) real_##name = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static void enter(void) {
    pthread_mutex_lock(&lock);
    if (control) __atomic_store_n(&control->busy, 1, __ATOMIC_SEQ_CST);
}
static void leave(void) {
    if (control) __atomic_store_n(&control->busy, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
}

/* The process ends itself between changes, as the test ends it: see `Watch::kill`. The lock is not given back. */
__attribute__((noreturn)) static void give_up(void) {
    REAL(void, abort, void);
    real_abort();
    __builtin_unreachable();
}
__attribute__((noreturn)) void abort(void) {
    enter();
    give_up();
}

/* An orderly end ends other threads just as suddenly. */
__attribute__((destructor)) static void end(void) { enter(); }

static ssize_t raw_write(int fd, const void *bytes, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    return real_write(fd, bytes, n);
}

static void put(enum op op, uint64_t node, uint64_t place, const char *path, const char *other, const struct iovec *data,
                int pieces, size_t bytes) {
    if (trace < 0) return;
    struct head head = {op, path ? strlen(path) : 0, other ? strlen(other) : 0, bytes, node, place};
    size_t total = sizeof head + head.path + head.other + bytes;
    char *all = malloc(total), *at = all;
    memcpy(at, &head, sizeof head), at += sizeof head;
    if (path) memcpy(at, path, head.path), at += head.path;
    if (other) memcpy(at, other, head.other), at += head.other;
    for (int i = 0; i < pieces && bytes > 0; i++) {
        size_t n = data[i].iov_len < bytes ? data[i].iov_len : bytes;
        memcpy(at, data[i].iov_base, n), at += n, bytes -= n;
    }
    if (raw_write(trace, all, total) != (ssize_t)total) give_up();
    free(all);
}

static int area_of(const char *path) {
    if (!root_len || !path || strncmp(path, root, root_len) || (path[root_len] && path[root_len] != '/')) return 0;
    const char *rest = path + root_len;
    if (!strncmp(rest, "/wal", 4)) return AREA_WAL;
    if (!strncmp(rest, "/quiver.db", 10)) return AREA_CATALOG;
    if (!strncmp(rest, "/store", 6) || !strncmp(rest, "/parts", 6)) return AREA_STORE;
    if (!strncmp(rest, "/spill", 6)) return 0;
    return AREA_OTHER;
}

/* The lock is held. */
static int fails(enum call call, int area) {
    if (!control || !area) return 0;
    control->counts[call][__builtin_ctz(area)]++;
    if (!(control->areas & area) || control->call != call || control->failing <= 0) return 0;
    if (control->before > 0) {
        control->before--;
        return 0;
    }
    control->failing--;
    control->fired++;
    errno = control->error;
    return 1;
}

static int is_tracked(int fd) { return fd >= 0 && fd < FDS ? areas[fd] : 0; }

static uint64_t node_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("QUIVER_DISK_ROOT"), *to = getenv("QUIVER_DISK_TRACE"), *by = getenv("QUIVER_DISK_CONTROL");
    if (!given) return;
    REAL(int, open64, const char *, int, ...);
    if (to) trace = real_open64(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (by) {
        int fd = real_open64(by, O_RDWR | O_CLOEXEC);
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED) give_up();
        control = page;
    }
    struct stat found;
    if (stat(given, &found)) give_up();
    snprintf(root, sizeof root, "%s", given);
    enter();
    put(ROOT, found.st_ino, 0, root, NULL, NULL, 0, 0);
    leave();
    root_len = strlen(root);
}

typedef int (*opener)(int, const char *, int, mode_t);
static int real_openat_any(int dir, const char *path, int flags, mode_t mode) {
    REAL(int, openat64, int, const char *, int, ...);
    return real_openat64(dir, path, flags, mode);
}

static int open_any(int dir, const char *path, int flags, mode_t mode) {
    int area = area_of(path);
    if (!area) {
        int fd = real_openat_any(dir, path, flags, mode);
        if (fd >= 0 && fd < FDS) areas[fd] = 0;
        return fd;
    }
    enter();
    struct stat found;
    int creates = (flags & O_CREAT) && lstat(path, &found) != 0;
    if (creates && fails(CALL_CREATE, area)) {
        leave();
        return -1;
    }
    int fd = real_openat_any(dir, path, flags, mode);
    int error = errno;
    if (fd >= 0) {
        if (fd >= FDS) give_up();
        areas[fd] = area;
        if (creates) put(CREATE, node_of(fd), 0, path, NULL, NULL, 0, 0);
        else if (flags & O_TRUNC) put(TRUNCATE, node_of(fd), 0, NULL, NULL, NULL, 0, 0);
    }
    leave();
    errno = error;
    return fd;
}

#define MODE(flags, mode)                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_any(AT_FDCWD, path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_any(dir, path, flags | O_LARGEFILE, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_any(dir, path, flags, mode);
}

int close(int fd) {
    REAL(int, close, int);
    if (fd >= 0 && fd < FDS) areas[fd] = 0;
    return real_close(fd);
}

/* Copies of a descriptor lead to the same file. */
static int copied(int from, int to) {
    if (to >= 0 && to < FDS && from >= 0 && from < FDS) areas[to] = areas[from];
    return to;
}
int dup(int fd) {
    REAL(int, dup, int);
    return copied(fd, real_dup(fd));
}
int dup2(int fd, int to) {
    REAL(int, dup2, int, int);
    return copied(fd, real_dup2(fd, to));
}
int dup3(int fd, int to, int flags) {
    REAL(int, dup3, int, int, int);
    return copied(fd, real_dup3(fd, to, flags));
}
int fcntl64(int fd, int command, ...) {
    REAL(int, fcntl64, int, int, ...);
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    int answer = real_fcntl64(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, answer) : answer;
}
int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fcntl64(fd, command, argument);
}

/* `place` < 0: where the descriptor stands. */
static ssize_t write_any(int fd, const struct iovec *data, int pieces, off64_t place) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
    if (!is_tracked(fd)) return place < 0 ? real_writev(fd, data, pieces) : real_pwritev64(fd, data, pieces, place);
    enter();
    if (fails(CALL_WRITE, areas[fd])) {
        leave();
        return -1;
    }
    ssize_t n = place < 0 ? real_writev(fd, data, pieces) : real_pwritev64(fd, data, pieces, place);
    int error = errno;
    if (n > 0) {
        uint64_t at = place < 0 ? (uint64_t)(lseek64(fd, 0, SEEK_CUR) - n) : (uint64_t)place;
        put(WRITE, node_of(fd), at, NULL, NULL, data, pieces, n);
    }
    leave();
    errno = error;
    return n;
}
ssize_t write(int fd, const void *bytes, size_t n) {
    if (!is_tracked(fd)) return raw_write(fd, bytes, n);
    struct iovec one = {(void *)bytes, n};
    return write_any(fd, &one, 1, -1);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    struct iovec one = {(void *)bytes, n};
    return write_any(fd, &one, 1, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }
ssize_t writev(int fd, const struct iovec *data, int pieces) { return write_any(fd, data, pieces, -1); }
ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off64_t at) { return write_any(fd, data, pieces, at); }
ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t at) { return write_any(fd, data, pieces, at); }

/* Copies within the kernel would pass unseen: the caller copies by hand instead. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    if (is_tracked(to)) {
        errno = ENOSYS;
        return -1;
    }
    return real_copy_file_range(from, from_at, to, to_at, n, flags);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t n) {
    REAL(ssize_t, sendfile64, int, int, off64_t *, size_t);
    if (is_tracked(to)) {
        errno = EINVAL;
        return -1;
    }
    return real_sendfile64(to, from, at, n);
}

static int read_fails(int fd) {
    if (!control || !is_tracked(fd)) return 0;
    enter();
    int bad = fails(CALL_READ, areas[fd]);
    leave();
    return bad;
}
ssize_t read(int fd, void *bytes, size_t n) {
    REAL(ssize_t, read, int, void *, size_t);
    return read_fails(fd) ? -1 : real_read(fd, bytes, n);
}
ssize_t pread64(int fd, void *bytes, size_t n, off64_t at) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t);
    return read_fails(fd) ? -1 : real_pread64(fd, bytes, n, at);
}
ssize_t pread(int fd, void *bytes, size_t n, off_t at) { return pread64(fd, bytes, n, at); }

static int sync_any(int fd, int data_only) {
    REAL(int, fsync, int);
    REAL(int, fdatasync, int);
    if (!is_tracked(fd)) return data_only ? real_fdatasync(fd) : real_fsync(fd);
    enter();
    uint64_t node = node_of(fd), token = ((uint64_t)getpid() << 32) | ++tokens;
    int bad = fails(CALL_SYNC, areas[fd]);
    int error = errno;
    put(bad ? SYNC_FAILED : SYNC_BEGIN, node, token, NULL, NULL, NULL, 0, 0);
    leave();
    if (bad) {
        errno = error;
        return -1;
    }
    /* The disk of the test is as safe as the machine that runs it; the trace says what was asked of it. */
    int answer = getenv("QUIVER_DISK_REAL_SYNC") ? (data_only ? real_fdatasync(fd) : real_fsync(fd)) : 0;
    error = errno;
    enter();
    if (!answer) put(SYNC_END, node, token, NULL, NULL, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
int fsync(int fd) { return sync_any(fd, 0); }
int fdatasync(int fd) { return sync_any(fd, 1); }

int ftruncate64(int fd, off64_t length) {
    REAL(int, ftruncate64, int, off64_t);
    if (!is_tracked(fd)) return real_ftruncate64(fd, length);
    enter();
    int answer = fails(CALL_WRITE, areas[fd]) ? -1 : real_ftruncate64(fd, length), error = errno;
    if (!answer) put(TRUNCATE, node_of(fd), length, NULL, NULL, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    int area = area_of(from);
    if (!area) return real_renameat(from_dir, from, to_dir, to);
    enter();
    int answer = fails(CALL_RENAME, area) ? -1 : real_renameat(from_dir, from, to_dir, to), error = errno;
    if (!answer) put(RENAME, 0, 0, from, to, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    int area = area_of(to);
    if (!area) return real_linkat(from_dir, from, to_dir, to, flags);
    enter();
    int answer = fails(CALL_RENAME, area) ? -1 : real_linkat(from_dir, from, to_dir, to, flags), error = errno;
    if (!answer) put(LINK, 0, 0, from, to, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int dir, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    int area = area_of(path);
    if (!area) return real_unlinkat(dir, path, flags);
    enter();
    int answer = fails(CALL_UNLINK, area) ? -1 : real_unlinkat(dir, path, flags), error = errno;
    if (!answer) put(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, path, NULL, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    int area = area_of(path);
    if (!area) return real_mkdir(path, mode);
    enter();
    int answer = fails(CALL_CREATE, area) ? -1 : real_mkdir(path, mode), error = errno;
    struct stat found;
    if (!answer && !stat(path, &found)) put(MKDIR, found.st_ino, 0, path, NULL, NULL, 0, 0);
    leave();
    errno = error;
    return answer;
}
