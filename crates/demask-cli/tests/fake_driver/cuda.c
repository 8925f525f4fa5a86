// A driver without a card: the functions of libcuda that demask calls. Kernels do nothing. FAKE_CUDA says what goes wrong,
// several things between commas:
//   none          nothing
//   answers       nothing, and every row of statistics and every draw that is read back names token 40
//   no-device     there is no card
//   no-card-0     the driver starts and counts no cards
//   old           made for CUDA 11.8
//   old-card      a card of compute capability 7.5
//   small         a card with 400 MB
//   tiny          a card with 200 MB
//   oom=N         memory runs out at allocation N
//   lost=N        the card is lost at launch N
//   bad-ptx       the kernels don't compile
// FAKE_CUDA_LOG names a file that gets the number of graphs and of their launches at the end.
// Built with -DMISSING, it lacks a function, like a driver of long ago.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
static long allocations, launches, graphs, graph_launches;
static const char *last_kernel = "";

// What follows a name in FAKE_CUDA; NULL if the name isn't there.
static const char *behind(const char *name) {
    size_t len = strlen(name);
    for (const char *at = getenv("FAKE_CUDA"); at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, len) == 0 && strchr(",=", at[len])) return at + len;
    }
    return NULL;
}

static int mode(const char *name) { return behind(name) != NULL; }

static long limit(const char *name) {
    const char *found = behind(name);
    return found && *found == '=' ? atol(found + 1) : -1;
}

static Result launched(void) { return limit("lost") >= 0 && ++launches > limit("lost") ? 719 : 0; }

__attribute__((destructor)) static void finish(void) {
    FILE *log = getenv("FAKE_CUDA_LOG") ? fopen(getenv("FAKE_CUDA_LOG"), "w") : NULL;
    if (log) fprintf(log, "%ld %ld", graphs, graph_launches), fclose(log);
}

Result cuInit(unsigned flags) { return mode("no-device") ? 100 : 0; }
Result cuDriverGetVersion(int *version) { return *version = mode("old") ? 11080 : 12040, 0; }
Result cuGetErrorString(int result, const char **text) {
    *text = result == 2 ? "out of memory" : result == 719 ? "unspecified launch failure" : "some failure";
    return 0;
}
Result cuDeviceGetCount(int *count) { return *count = mode("no-card-0") ? 0 : 1, 0; }
Result cuDeviceGet(int *device, int index) { return *device = index, 0; }
Result cuDeviceGetName(char *name, int len, int device) { return snprintf(name, len, "Fake Card"), 0; }
Result cuDeviceGetAttribute(int *value, int what, int device) {
    int old = mode("old-card");
    return *value = what == 75 ? (old ? 7 : 8) : (old ? 5 : 0), 0;
}
Result cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &allocations, 0; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
Result cuCtxSetCurrent(void *context) { return 0; }
Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    size_t all = mode("small") ? 400u << 20 : mode("tiny") ? 200u << 20 : (size_t)8 << 30;
    return *free = *total = all, 0;
}
Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (limit("oom") >= 0 && ++allocations > limit("oom")) return 2;
    return *address = (uint64_t)(uintptr_t)calloc(1, bytes + 256), 0;
}
Result cuMemFree_v2(uint64_t address) { return free((void *)(uintptr_t)address), 0; }
Result cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void *stream) { return 0; }
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) { return 0; }
// A row's statistics, as `merge_statistics` leaves them.
static const struct {
    double total, weighted;
    float greatest;
    uint32_t best;
    float best_logit, second_logit;
    uint32_t finite, unused[3];
} whole = {1.0, 0.0, 0.0f, 40, 0.0f, -1.0f, 1};
// A draw, as `sample` leaves it.
static const struct {
    double total, weighted, warm_total, warm_weighted;
    float greatest, best, second, drawn;
    uint32_t token, finite, unused[2];
} draw = {1.0, 0.0, 1.0, 0.0, 0.0f, 0.0f, -1.0f, 0.0f, 40, 1};
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    int draws = strcmp(last_kernel, "sample") == 0, statistics = strcmp(last_kernel, "merge_statistics") == 0;
    size_t size = draws ? sizeof draw : sizeof whole;
    memset(to, 0, bytes);
    for (size_t at = 0; mode("answers") && (draws || statistics) && at + size <= bytes; at += size) {
        memcpy((char *)to + at, draws ? (const void *)&draw : &whole, size);
    }
    return 0;
}
Result cuStreamCreate(void **stream, unsigned flags) { return *stream = &launches, 0; }
Result cuStreamDestroy_v2(void *stream) { return 0; }
Result cuStreamSynchronize(void *stream) { return limit("lost") >= 0 && launches > limit("lost") ? 719 : 0; }
Result cuStreamBeginCapture_v2(void *stream, unsigned mode) { return 0; }
Result cuStreamEndCapture(void *stream, void **graph) { return *graph = &launches, 0; }
Result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    return graphs++, *executable = &launches, 0;
}
Result cuGraphDestroy(void *graph) { return 0; }
Result cuGraphLaunch(void *executable, void *stream) { return graph_launches++, launched(); }
Result cuGraphExecDestroy(void *executable) { return 0; }
Result cuModuleLoadDataEx(void **module, const void *text, unsigned count, int *options, void **values) {
    if (mode("bad-ptx")) {
        strcpy(values[0], "ptxas fatal: what is this\nsecond line");
        return 218;
    }
    return *module = &launches, 0;
}
Result cuModuleUnload(void *module) { return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) { return *function = strdup(name), 0; }
#ifndef MISSING
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **params, void **extra) {
    last_kernel = function;
    return launched();
}
#endif
