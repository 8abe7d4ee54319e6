/*===- HeaderTest.c - The public headers are C -----------------------------===
 *
 * Compiled as C with pedantic warnings; ApiTest.cpp calls the function.
 */

#include "shardq/chunks.h"
#include "shardq/runtime.h"
#include "shardq/split.h"
#include "shardq/tensor.h"
#include "shardq/views.h"

int shardqHeaderTestAbi(void) {
  shardq_plan plan = {0};
  shardq_comm_options options = {0};
  plan.struct_size = sizeof plan;
  options.struct_size = sizeof options;
  options.plan = &plan;
  return options.plan->struct_size == sizeof(shardq_plan)
             ? (int)shardq_abi_version()
             : -1;
}
