/* Loaded before libc: a machine without ptxas, wherever it is looked for. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int access(const char *path, int mode) {
  const char *name = strrchr(path, '/');
  if (name && strcmp(name, "/ptxas") == 0) {
    errno = ENOENT;
    return -1;
  }
  int (*next)(const char *, int);
  *(void **)&next = dlsym(RTLD_NEXT, "access");
  return next(path, mode);
}
