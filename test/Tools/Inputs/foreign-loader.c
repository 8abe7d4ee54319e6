/* Loads a plugin as a tool with an MLIR of its own inside does, and says which
   version of the plugin interface the plugin answers with. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

struct info {
  uint32_t apiVersion;
  const char *name;
  const char *version;
  void (*registerAll)(void);
};

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  void *plugin = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
  if (!plugin) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  struct info (*get)(void) = (struct info (*)(void))dlsym(plugin, argv[2]);
  if (!get)
    return 2;
  printf("api version %u\n", get().apiVersion);
  return 0;
}
