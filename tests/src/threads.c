/* Refuses new threads while a byte of a shared page says so, as a system does that has no more of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile unsigned char *refuses;

__attribute__((constructor)) static void begin(void) {
    const char *by = getenv("QUIVER_THREADS_CONTROL");
    if (!by) return;
    int fd = open(by, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) abort();
    refuses = page;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    if (refuses && refuses[0]) {
        __atomic_fetch_add((unsigned *)(refuses + 4), 1, __ATOMIC_RELAXED);
        return EAGAIN;
    }
    if (refuses) __atomic_fetch_add((unsigned *)(refuses + 8), 1, __ATOMIC_RELAXED);
    return real(thread, attributes, run, argument);
}
