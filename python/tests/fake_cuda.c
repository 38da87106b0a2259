/* A CUDA driver that only writes down what is pinned, to the file FAKE_CUDA_LOG. It ends the process where the real one's
 * memory would be gone: a range that is unmapped while it is pinned, or unpinned twice. FAKE_CUDA_FAILS: pinning fails.
 * FAKE_CUDA_KEEPS: unpinning fails. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int contexts, depth, relaxed;
static struct { void *address; size_t bytes; } pinned[16];

static void note(const char *what, void *address, size_t bytes) {
  FILE *log = fopen(getenv("FAKE_CUDA_LOG"), "a");
  fprintf(log, "%s %d %lu %zu\n", what, (int)getpid(), (unsigned long)address, bytes);
  fclose(log);
}

static void must(int holds, const char *why) {
  if (holds) return;
  fprintf(stderr, "fake CUDA: %s\n", why);
  abort();
}

/* A child of a process that has CUDA is told so, once and for all. */
int cuInit(unsigned flags) {
  static pid_t starter;
  if (!starter) starter = getpid();
  return starter != getpid() ? 3 : flags != 0;
}

int cuDeviceGet(int *device, int ordinal) {
  if (ordinal > 1) return 101;
  *device = 40 + ordinal;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  static int in_force;
  int before = in_force;
  in_force = *mode;
  *mode = before;
  relaxed = in_force == 2;
  return 0;
}

int cuGetErrorString(int status, const char **text) {
  *text = status == 101 ? "invalid device ordinal" : "out of memory";
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  must(device == 40 || device == 41, "a context of no device");
  contexts++;
  *context = &contexts;
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  must(device >= 40 && contexts-- > 0, "a context was released that nobody had");
  return 0;
}

int cuCtxPushCurrent_v2(void *context) {
  must(context == &contexts && contexts > 0, "a context was pushed that was not retained");
  depth++;
  return 0;
}

int cuCtxPopCurrent_v2(void **context) {
  must(depth-- > 0, "a context was popped that was not pushed");
  *context = &contexts;
  return 0;
}

int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  must(depth > 0 && relaxed && flags == 1, "memory was pinned without a context, for one alone, or in the way of graphs");
  if (getenv("FAKE_CUDA_FAILS")) return 2;
  for (int at = 0; at < 16; at++) {
    if (pinned[at].address) continue;
    pinned[at].address = address;
    pinned[at].bytes = bytes;
    note("pinned", address, bytes);
    return 0;
  }
  return 2;
}

int cuMemHostUnregister(void *address) {
  must(depth > 0 && relaxed, "memory was unpinned without a context, or in the way of graphs");
  if (getenv("FAKE_CUDA_KEEPS")) return 900;
  for (int at = 0; at < 16; at++) {
    if (pinned[at].address != address) continue;
    must(msync(address, pinned[at].bytes, MS_ASYNC) == 0, "memory was unmapped while it was pinned");
    pinned[at].address = NULL;
    note("unpinned", address, 0);
    return 0;
  }
  must(0, "memory was unpinned that was not pinned");
  return 1;
}
