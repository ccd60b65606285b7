/* Preloaded into a broker: records what it does to the files of one directory, and lets calls fail.
 *
 * After the broker has been killed, disk_image.py makes of the record what a loss of power may have left. Nothing is
 * really synced: a sync is a line in the record.
 *
 * TORTURE_ROOT     the directory; absolute, without symbolic links
 * TORTURE_RECORD   the file that the record is appended to
 * TORTURE_CONTROL  a file of sizeof(struct control) bytes, by which the driver says what fails
 * TORTURE_ONLY     only calls on files with this in their paths fail; optional
 *
 * Each record is a struct header and its payload. It is written after the call has succeeded: what a kill leaves out was
 * not synced either. The layouts of both structures are repeated in preloaded_disk.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, TRUNCATE, SYNC_BEGIN, SYNC_END, SYNC_FAILED, RENAME, LINK, UNLINK, MKDIR, RMDIR, DIRECTORY_SYNC, SYNC_ALL };

struct header {
    uint32_t kind;
    uint32_t first;  /* length of the payload's first part: a path, or data */
    uint32_t second; /* length of its second part: the new path */
    uint32_t unused;
    uint64_t inode;
    uint64_t at; /* offset of data, size of a file, or number of a sync */
};

/* Calls that may fail. */
enum call { READ, APPEND, SYNC, OPEN, NAME, CALLS };

struct fault {
    int32_t after; /* how many calls succeed before */
    int32_t times; /* how many fail then */
    int32_t error;
    int32_t hits; /* how many have failed */
};

struct control {
    int64_t room;        /* bytes that can be written until the disk is full; -1: no limit */
    int64_t clock_nanos; /* added to the wall clock */
    int64_t full_hits;   /* writes refused because the disk was full */
    volatile int64_t busy; /* whether a call is done that may not be in the record yet */
    struct fault faults[CALLS];
};

#define FILES 65536
struct file {
    uint64_t inode;
    char is_tracked;
    char is_directory;
    char may_fail;
};
static struct file files[FILES];
static struct control *control;
static char root[PATH_MAX];
static const char *only = "";
static size_t root_length;
static int record = -1;
static uint64_t syncs;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void enter(void) {
    pthread_mutex_lock(&mutex);
    if (control)
        control->busy = 1;
}

static void leave(void) {
    if (control)
        control->busy = 0;
    pthread_mutex_unlock(&mutex);
}

#define REAL(name) ((__typeof__(&name))real(#name, &name##_real))
static void *real(const char *name, void **found) {
    if (!*found)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
}

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("TORTURE_ROOT"), *path = getenv("TORTURE_RECORD"), *shared = getenv("TORTURE_CONTROL");
    if (!directory || !path || !shared)
        return;
    if (getenv("TORTURE_ONLY"))
        only = getenv("TORTURE_ONLY");
    root_length = strlen(directory);
    memcpy(root, directory, root_length + 1);
    int handle = syscall(SYS_openat, AT_FDCWD, shared, O_RDWR | O_CLOEXEC, 0);
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    record = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (handle < 0 || mapped == MAP_FAILED || record < 0) {
        fprintf(stderr, "tests/torture/disk.c cannot open its files\n");
        _exit(70);
    }
    control = mapped;
    control->busy = 0;
}

/* The absolute path of a call, if it is in the directory; else NULL. */
static char *inside(int directory, const char *path, char *into) {
    if (!control || !path)
        return NULL;
    if (path[0] == '/' || directory == AT_FDCWD) {
        if (strlen(path) >= PATH_MAX)
            return NULL;
        strcpy(into, path);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, into, PATH_MAX - 1);
        if (length < 0 || length + strlen(path) + 2 >= PATH_MAX)
            return NULL;
        into[length] = '/';
        strcpy(into + length + 1, path);
    }
    if (strncmp(into, root, root_length) || (into[root_length] != '/' && into[root_length]))
        return NULL;
    return into;
}

static struct file *tracked(int handle) {
    if (!control || handle < 0 || handle >= FILES || !files[handle].is_tracked)
        return NULL;
    return &files[handle];
}

/* Call with the mutex. */
static void note(enum kind kind, uint64_t inode, uint64_t at, const void *first, size_t length, const char *second) {
    struct header header = {kind, length, second ? strlen(second) : 0, 0, inode, at};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)first, length}, {(void *)second, header.second}};
    ssize_t size = sizeof header + length + header.second;
    if (syscall(SYS_writev, record, parts, 3) != size) {
        fprintf(stderr, "tests/torture/disk.c cannot write its record\n");
        _exit(71);
    }
}

/* Whether the driver wants this call to fail; sets errno. Call with the mutex. */
static int fails(enum call call, int may_fail) {
    struct fault *fault = &control->faults[call];
    if (!fault->times || !may_fail)
        return 0;
    if (fault->after > 0) {
        fault->after--;
        return 0;
    }
    fault->times--;
    fault->hits++;
    errno = fault->error;
    return 1;
}

/* Whether the driver wants a call on a path to fail; sets errno. Call with the mutex. */
static int fails_at(enum call call, const char *path) {
    return strstr(path, only) && fails(call, 1);
}

static uint64_t size_of(int handle) {
    struct stat found;
    return fstat(handle, &found) ? 0 : found.st_size;
}

/* How many of these bytes there is room for, 0 with errno if none. Call with the mutex. */
static size_t with_room(size_t size) {
    if (control->room < 0 || !size)
        return size;
    if (!control->room) {
        control->full_hits++;
        errno = ENOSPC;
        return 0;
    }
    if (size > (size_t)control->room)
        size = control->room;
    control->room -= size;
    return size;
}

static void give_back(uint64_t size) {
    if (control->room >= 0)
        control->room += size;
}

/* Opening and closing */

static int open_any(int directory, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX], *absolute = inside(directory, path, buffer);
    if (!absolute)
        return syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode);
    enter();
    struct stat found;
    int is_new = flags & O_CREAT && stat(absolute, &found);
    int handle = -1;
    if (!fails_at(OPEN, absolute) && !(is_new && control->room == 0 && !with_room(1)))
        handle = syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode);
    if (handle >= 0 && handle < FILES && !fstat(handle, &found)) {
        files[handle] = (struct file){found.st_ino, 1, S_ISDIR(found.st_mode), !!strstr(absolute, only)};
        if (is_new)
            note(CREATE, found.st_ino, 0, absolute, strlen(absolute), NULL);
        else if (flags & O_TRUNC)
            note(TRUNCATE, found.st_ino, 0, NULL, 0, NULL);
    }
    leave();
    return handle;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN_LIKE(name)                                                                                                 \
    int name(const char *path, int flags, ...) {                                                                        \
        va_list arguments;                                                                                              \
        va_start(arguments, flags);                                                                                     \
        mode_t mode = mode_of(flags, arguments);                                                                        \
        va_end(arguments);                                                                                              \
        return open_any(AT_FDCWD, path, flags, mode);                                                                   \
    }
#define OPENAT_LIKE(name)                                                                                               \
    int name(int directory, const char *path, int flags, ...) {                                                         \
        va_list arguments;                                                                                              \
        va_start(arguments, flags);                                                                                     \
        mode_t mode = mode_of(flags, arguments);                                                                        \
        va_end(arguments);                                                                                              \
        return open_any(directory, path, flags, mode);                                                                  \
    }
OPEN_LIKE(open)
OPEN_LIKE(open64)
OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)

int close(int handle) {
    if (handle >= 0 && handle < FILES)
        files[handle].is_tracked = 0;
    return syscall(SYS_close, handle);
}

/* Reading and writing */

static ssize_t read_any(int handle, void *into, size_t size, int64_t offset) {
    struct file *file = tracked(handle);
    if (file) {
        enter();
        int is_failing = fails(READ, file->may_fail);
        leave();
        if (is_failing)
            return -1;
    }
    return offset < 0 ? syscall(SYS_read, handle, into, size) : syscall(SYS_pread64, handle, into, size, offset);
}

ssize_t read(int handle, void *into, size_t size) { return read_any(handle, into, size, -1); }
ssize_t pread(int handle, void *into, size_t size, off_t offset) { return read_any(handle, into, size, offset); }
ssize_t pread64(int handle, void *into, size_t size, off64_t offset) { return read_any(handle, into, size, offset); }
ssize_t __read_chk(int handle, void *into, size_t size, size_t room) { (void)room; return read_any(handle, into, size, -1); }
ssize_t __pread64_chk(int handle, void *into, size_t size, off64_t offset, size_t room) {
    (void)room;
    return read_any(handle, into, size, offset);
}

static ssize_t write_any(int handle, const void *from, size_t size, int64_t offset) {
    struct file *file = tracked(handle);
    if (!file)
        return offset < 0 ? syscall(SYS_write, handle, from, size) : syscall(SYS_pwrite64, handle, from, size, offset);
    enter();
    ssize_t written = -1;
    if (!fails(APPEND, file->may_fail)) {
        /* What is overwritten takes no room. */
        int is_within = offset >= 0 && offset + size <= size_of(handle);
        size_t most = is_within ? size : with_room(size);
        if (most || !size) {
            written = offset < 0 ? syscall(SYS_write, handle, from, most) : syscall(SYS_pwrite64, handle, from, most, offset);
            if (written > 0) {
                uint64_t at = offset < 0 ? (uint64_t)lseek(handle, 0, SEEK_CUR) - written : (uint64_t)offset;
                note(WRITE, file->inode, at, from, written, NULL);
            }
        }
    }
    leave();
    return written;
}

ssize_t write(int handle, const void *from, size_t size) { return write_any(handle, from, size, -1); }
ssize_t pwrite(int handle, const void *from, size_t size, off_t offset) { return write_any(handle, from, size, offset); }
ssize_t pwrite64(int handle, const void *from, size_t size, off64_t offset) { return write_any(handle, from, size, offset); }

static int truncate_any(int handle, off64_t size) {
    struct file *file = tracked(handle);
    if (!file)
        return syscall(SYS_ftruncate, handle, size);
    enter();
    uint64_t before = size_of(handle);
    int result = syscall(SYS_ftruncate, handle, size);
    if (!result) {
        if ((uint64_t)size < before)
            give_back(before - size);
        note(TRUNCATE, file->inode, size, NULL, 0, NULL);
    }
    leave();
    return result;
}

int ftruncate(int handle, off_t size) { return truncate_any(handle, size); }
int ftruncate64(int handle, off64_t size) { return truncate_any(handle, size); }

/* Returns the error, and does not set errno. */
static int allocate_any(int handle, off64_t offset, off64_t size) {
    struct file *file = tracked(handle);
    enter();
    int error = 0;
    uint64_t before = size_of(handle), after = offset + size;
    if (file && after > before && control->room >= 0 && after - before > (uint64_t)control->room)
        error = ENOSPC;
    else if (after > before) {
        if (file && control->room >= 0)
            control->room -= after - before;
        if (syscall(SYS_ftruncate, handle, after))
            error = errno;
        else if (file)
            note(TRUNCATE, file->inode, after, NULL, 0, NULL);
    }
    leave();
    return error;
}

int posix_fallocate(int handle, off_t offset, off_t size) { return allocate_any(handle, offset, size); }
int posix_fallocate64(int handle, off64_t offset, off64_t size) { return allocate_any(handle, offset, size); }

static int refuse(void) {
    errno = EOPNOTSUPP;
    return -1;
}
int fallocate(int handle, int mode, off_t offset, off_t size) { (void)handle, (void)mode, (void)offset, (void)size; return refuse(); }
int fallocate64(int handle, int mode, off64_t offset, off64_t size) { (void)handle, (void)mode, (void)offset, (void)size; return refuse(); }

/* Syncing */

static int sync_any(int handle, long number) {
    struct file *file = tracked(handle);
    if (!file)
        return syscall(number, handle);
    enter();
    int result = 0;
    if (fails(SYNC, file->may_fail)) {
        note(SYNC_FAILED, file->inode, 0, NULL, 0, NULL);
        result = -1;
    } else if (file->is_directory) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
        ssize_t length = readlink(link, path, sizeof path);
        note(DIRECTORY_SYNC, file->inode, 0, path, length < 0 ? 0 : length, NULL);
    } else {
        /* What is written meanwhile may or may not be synced. */
        uint64_t sync = ++syncs, inode = file->inode;
        note(SYNC_BEGIN, inode, sync, NULL, 0, NULL);
        leave();
        sched_yield();
        enter();
        note(SYNC_END, inode, sync, NULL, 0, NULL);
    }
    leave();
    return result;
}

int fsync(int handle) { return sync_any(handle, SYS_fsync); }
int fdatasync(int handle) { return sync_any(handle, SYS_fdatasync); }
void sync(void) {
    if (!control) {
        syscall(SYS_sync);
        return;
    }
    enter();
    note(SYNC_ALL, 0, 0, NULL, 0, NULL);
    leave();
}

/* Names */

static int rename_any(int from, const char *old, int to, const char *new) {
    char first[PATH_MAX], second[PATH_MAX];
    char *source = inside(from, old, first), *target = inside(to, new, second);
    if (!source || !target)
        return syscall(SYS_renameat2, from, old, to, new, 0);
    enter();
    int result = fails_at(NAME, target) ? -1 : syscall(SYS_renameat2, from, old, to, new, 0);
    if (!result)
        note(RENAME, 0, 0, source, strlen(source), target);
    leave();
    return result;
}

int rename(const char *old, const char *new) { return rename_any(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int from, const char *old, int to, const char *new) { return rename_any(from, old, to, new); }

static int link_any(int from, const char *old, int to, const char *new, int flags) {
    char first[PATH_MAX], second[PATH_MAX];
    char *source = inside(from, old, first), *target = inside(to, new, second);
    enter();
    int result = syscall(SYS_linkat, from, old, to, new, flags);
    if (!result && source && target)
        note(LINK, 0, 0, source, strlen(source), target);
    leave();
    return result;
}

int link(const char *old, const char *new) { return link_any(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) { return link_any(from, old, to, new, flags); }

static int unlink_any(int directory, const char *path, int flags) {
    char buffer[PATH_MAX], *absolute = inside(directory, path, buffer);
    if (!absolute)
        return syscall(SYS_unlinkat, directory, path, flags);
    enter();
    struct stat found;
    int is_file = !lstat(absolute, &found) && S_ISREG(found.st_mode) && found.st_nlink == 1;
    int result = fails_at(NAME, absolute) ? -1 : syscall(SYS_unlinkat, directory, path, flags);
    if (!result) {
        if (is_file)
            give_back(found.st_size);
        note(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, absolute, strlen(absolute), NULL);
    }
    leave();
    return result;
}

int unlink(const char *path) { return unlink_any(AT_FDCWD, path, 0); }
int unlinkat(int directory, const char *path, int flags) { return unlink_any(directory, path, flags); }
int rmdir(const char *path) { return unlink_any(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat found;
    return unlink_any(AT_FDCWD, path, !lstat(path, &found) && S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

static int mkdir_any(int directory, const char *path, mode_t mode) {
    char buffer[PATH_MAX], *absolute = inside(directory, path, buffer);
    if (!absolute)
        return syscall(SYS_mkdirat, directory, path, mode);
    enter();
    int result = control->room == 0 && !with_room(1) ? -1 : syscall(SYS_mkdirat, directory, path, mode);
    if (!result)
        note(MKDIR, 0, 0, absolute, strlen(absolute), NULL);
    leave();
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdir_any(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) { return mkdir_any(directory, path, mode); }

/* Calls that copy within the kernel: Python reads and writes instead. */
ssize_t copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t size, unsigned flags) {
    (void)from, (void)in, (void)to, (void)out, (void)size, (void)flags;
    errno = ENOTSUP;
    return -1;
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    if (!tracked(to))
        return syscall(SYS_sendfile, to, from, offset, size);
    errno = ENOTSOCK;
    return -1;
}

/* Free space */

static void *statvfs64_real, *statvfs_real;

int statvfs64(const char *path, struct statvfs64 *found) {
    int result = REAL(statvfs64)(path, found);
    if (!result && control && control->room >= 0)
        found->f_bavail = found->f_bfree = control->room / found->f_frsize;
    return result;
}
int statvfs(const char *path, struct statvfs *found) {
    int result = REAL(statvfs)(path, found);
    if (!result && control && control->room >= 0)
        found->f_bavail = found->f_bfree = control->room / found->f_frsize;
    return result;
}

/* The wall clock */

int clock_gettime(clockid_t clock, struct timespec *into) {
    int result = syscall(SYS_clock_gettime, clock, into);
    if (!result && control && clock == CLOCK_REALTIME && control->clock_nanos) {
        int64_t nanos = into->tv_sec * 1000000000L + into->tv_nsec + control->clock_nanos;
        into->tv_sec = nanos / 1000000000L;
        into->tv_nsec = nanos % 1000000000L;
    }
    return result;
}
int gettimeofday(struct timeval *restrict into, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    into->tv_sec = now.tv_sec;
    into->tv_usec = now.tv_nsec / 1000;
    return result;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
