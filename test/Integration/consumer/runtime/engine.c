/* A group of one rank. */
#include "shardq/runtime.h"
#include <stdio.h>

int main(void) {
  char message[256];
  shardq_thread_group *group = NULL;
  shardq_comm_options options = {.struct_size = sizeof(options), .world = 1};
  shardq_plan plan = {.struct_size = sizeof(plan), .slots = 1};
  shardq_comm *comm = NULL;
  options.plan = &plan;
  shardq_thread_group_create(1, &group);
  shardq_bootstrap_threads(group, 0, &options.bootstrap);
  shardq_status status =
      shardq_comm_create(&options, &comm, message, sizeof(message));
  if (status == SHARDQ_OK)
    printf("ABI %u, world %d\n", shardq_abi_version(), shardq_comm_world(comm));
  else
    fprintf(stderr, "%s: %s\n", shardq_status_name(status), message);
  shardq_comm_destroy(comm);
  shardq_bootstrap_destroy(options.bootstrap);
  shardq_thread_group_destroy(group);
  return status != SHARDQ_OK;
}
