//===- ApiTest.cpp - Arguments, names, versions ---------------------------===//

#include "Ranks.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <set>

using namespace shardq::test;

extern "C" int shardqHeaderTestAbi(void);

namespace {

shardq_status createAlone(const RankOptions &options, const shardq_plan *plan,
                          std::string &message) {
  shardq_thread_group *group = nullptr;
  shardq_bootstrap *bootstrap = nullptr;
  EXPECT_EQ(shardq_thread_group_create(1, &group), SHARDQ_OK);
  EXPECT_EQ(shardq_bootstrap_threads(group, 0, &bootstrap), SHARDQ_OK);
  shardq_comm_options comm{};
  comm.struct_size = sizeof(comm);
  comm.world = 1;
  comm.bootstrap = bootstrap;
  comm.plan = plan;
  comm.fault = options.fault;
  if (options.adjust)
    options.adjust(0, comm);
  char text[256] = "?";
  shardq_comm *member = nullptr;
  shardq_status status = shardq_comm_create(&comm, &member, text, sizeof(text));
  EXPECT_EQ(member != nullptr, status == SHARDQ_OK);
  message = text;
  shardq_comm_destroy(member);
  shardq_bootstrap_destroy(bootstrap);
  shardq_thread_group_destroy(group);
  return status;
}

} // namespace

TEST(Api, HeaderIsC) { EXPECT_EQ(shardqHeaderTestAbi(), SHARDQ_ABI_VERSION); }

TEST(Api, StatusNamesDiffer) {
  std::set<std::string> names;
  for (shardq_status status = SHARDQ_OK; status <= SHARDQ_ABORTED; ++status)
    names.insert(shardq_status_name(status));
  EXPECT_EQ(names.size(), size_t(SHARDQ_ABORTED) + 1);
  EXPECT_STREQ(shardq_status_name(-1), "unknown");
  EXPECT_STREQ(shardq_status_name(SHARDQ_ABORTED + 1), "unknown");
}

TEST(Api, NullHandles) {
  EXPECT_EQ(shardq_comm_rank(nullptr), -1);
  EXPECT_EQ(shardq_comm_world(nullptr), -1);
  EXPECT_EQ(shardq_comm_slots(nullptr), -1);
  EXPECT_EQ(shardq_comm_context(nullptr, 0), nullptr);
  EXPECT_EQ(shardq_context_slot(nullptr), -1);
  shardq_error error{};
  EXPECT_EQ(shardq_context_error(nullptr, &error), SHARDQ_INVALID);
  char message[8] = "";
  EXPECT_EQ(shardq_context_status(nullptr, message, sizeof(message)),
            SHARDQ_INVALID);
  EXPECT_STREQ(message, "context");
  shardq_context_set_tap(nullptr, nullptr, nullptr);
  shardq_context_set_launch_callback(nullptr, nullptr, nullptr);
  shardq_comm_abort(nullptr);
  shardq_comm_destroy(nullptr);
  shardq_bootstrap_destroy(nullptr);
  shardq_thread_group_destroy(nullptr);

  int64_t rows = 0;
  EXPECT_EQ(shardq_rt_rank(nullptr), -1);
  EXPECT_EQ(shardq_rt_workspace(nullptr, 0, 1, 1), nullptr);
  EXPECT_EQ(shardq_rt_peer(nullptr, &rows, 0), &rows);
  shardq_rt_signal(nullptr, 0, 0, 0, 1, 1, &rows);
  shardq_rt_wait(nullptr, 0, 0, 0, 1, 1, &rows);
  shardq_rt_tap(nullptr, "x", 4, 0, nullptr, nullptr, nullptr, nullptr, 0);
  shardq_rt_expect(nullptr, "x", 0, 1);
  shardq_rt_beyond_table(nullptr, 0, 0, 0, 0);
  shardq_rt_no_place(nullptr, 0, 0, 0);
  shardq_rt_beyond_cache(nullptr, 0, 0, 0);
  shardq_rt_check_starts(nullptr, nullptr, 1, 0, 0);
  shardq_rt_begin(nullptr, nullptr);
  EXPECT_EQ(shardq_rt_end(nullptr), SHARDQ_INVALID);
  EXPECT_EQ(shardq_rt_device(nullptr), nullptr);
  EXPECT_EQ(shardq_rt_alloc(nullptr, 8), nullptr);
  shardq_rt_free(nullptr, &rows);
  shardq_rt_launch(nullptr, nullptr, 0, 1, nullptr);
  shardq_rt_begin_aside(nullptr, 0);
  shardq_rt_end_aside(nullptr);
  shardq_rt_join_aside(nullptr);
}

TEST(Api, BootstrapArguments) {
  shardq_bootstrap *bootstrap = nullptr;
  EXPECT_EQ(shardq_bootstrap_files("/tmp", 0, 2, nullptr), SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_files(nullptr, 0, 2, &bootstrap), SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_files("", 0, 2, &bootstrap), SHARDQ_INVALID);
  for (auto [rank, world] :
       {std::pair(2, 2), std::pair(-1, 2), std::pair(0, 0), std::pair(0, 1025)})
    EXPECT_EQ(shardq_bootstrap_files("/tmp", rank, world, &bootstrap),
              SHARDQ_INVALID);
  EXPECT_EQ(bootstrap, nullptr);

  shardq_bootstrap_callbacks callbacks{};
  callbacks.struct_size = sizeof(callbacks);
  EXPECT_EQ(shardq_bootstrap_from_callbacks(&callbacks, 0, 2, &bootstrap),
            SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_from_callbacks(nullptr, 0, 2, &bootstrap),
            SHARDQ_INVALID);

  shardq_thread_group *group = nullptr;
  EXPECT_EQ(shardq_thread_group_create(0, &group), SHARDQ_INVALID);
  EXPECT_EQ(shardq_thread_group_create(2, nullptr), SHARDQ_INVALID);
  ASSERT_EQ(shardq_thread_group_create(2, &group), SHARDQ_OK);
  EXPECT_EQ(shardq_bootstrap_threads(group, 2, &bootstrap), SHARDQ_INVALID);
  EXPECT_EQ(shardq_bootstrap_threads(nullptr, 0, &bootstrap), SHARDQ_INVALID);
  shardq_thread_group_destroy(group);
}

TEST(Api, OptionsAreChecked) {
  TestPlan plan(1, 4);
  std::string message;
  auto create = [&](std::function<void(shardq_comm_options &)> change) {
    RankOptions options;
    options.adjust = [&](int32_t, shardq_comm_options &comm) { change(comm); };
    return createAlone(options, &plan.plan, message);
  };
  EXPECT_EQ(create([](auto &) {}), SHARDQ_OK);
  EXPECT_EQ(message, "");
  EXPECT_EQ(create([](auto &comm) { comm.struct_size = 8; }), SHARDQ_INVALID);
  EXPECT_NE(message.find("struct_size is 8"), std::string::npos) << message;
  EXPECT_EQ(create([](auto &comm) { comm.bootstrap = nullptr; }),
            SHARDQ_INVALID);
  EXPECT_EQ(create([](auto &comm) { comm.rank = 1; }), SHARDQ_INVALID);
  EXPECT_EQ(create([](auto &comm) { comm.world = 2; }), SHARDQ_MISMATCH);
  EXPECT_EQ(create([](auto &comm) { comm.plan = nullptr; }), SHARDQ_INVALID);
  EXPECT_EQ(create([](auto &comm) { comm.deadline_ms = -1; }), SHARDQ_INVALID);
  EXPECT_EQ(message, "rank 0: deadline_ms is -1");
  EXPECT_EQ(create([](auto &comm) { comm.rendezvous_deadline_ms = -1; }),
            SHARDQ_INVALID);
  EXPECT_EQ(create([](auto &comm) { comm.fault = "rank=x"; }), SHARDQ_INVALID);
  EXPECT_EQ(create([](auto &comm) { comm.fault = "rank=0,action=kill"; }),
            SHARDQ_INVALID);
  EXPECT_NE(message.find("threads"), std::string::npos) << message;

  char text[16] = "?";
  shardq_comm *member = nullptr;
  EXPECT_EQ(shardq_comm_create(nullptr, &member, text, sizeof(text)),
            SHARDQ_INVALID);
  EXPECT_STREQ(text, "options or out ");
  EXPECT_EQ(shardq_comm_create(nullptr, nullptr, nullptr, 0), SHARDQ_INVALID);
}

TEST(Api, FaultFromTheEnvironment) {
  TestPlan plan(1, 4);
  std::string message;
  RankOptions options;
  options.fault = nullptr;
  ASSERT_EQ(setenv("SHARDQ_FAULT", "nonsense", 1), 0);
  EXPECT_EQ(createAlone(options, &plan.plan, message), SHARDQ_INVALID);
  EXPECT_NE(message.find("unknown key 'nonsense'"), std::string::npos);
  options.fault = "";
  EXPECT_EQ(createAlone(options, &plan.plan, message), SHARDQ_OK);
  ASSERT_EQ(unsetenv("SHARDQ_FAULT"), 0);
}

TEST(Api, LibraryExportsTheAbi) {
  void *library = dlopen(SHARDQ_RUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char *name : {"shardq_abi_version",
                           "shardq_status_name",
                           "shardq_comm_create",
                           "shardq_comm_destroy",
                           "shardq_comm_rank",
                           "shardq_comm_world",
                           "shardq_comm_slots",
                           "shardq_comm_context",
                           "shardq_comm_abort",
                           "shardq_context_status",
                           "shardq_context_error",
                           "shardq_context_slot",
                           "shardq_context_set_tap",
                           "shardq_context_set_launch_callback",
                           "shardq_bootstrap_files",
                           "shardq_bootstrap_from_callbacks",
                           "shardq_bootstrap_threads",
                           "shardq_thread_group_create",
                           "shardq_thread_group_destroy",
                           "shardq_bootstrap_destroy",
                           "shardq_rt_rank",
                           "shardq_rt_workspace",
                           "shardq_rt_peer",
                           "shardq_rt_signal",
                           "shardq_rt_wait",
                           "shardq_rt_tap",
                           "shardq_comm_load",
                           "shardq_bootstrap_tcp",
                           "shardq_bootstrap_torchrun",
                           "shardq_rt_begin",
                           "shardq_rt_end",
                           "shardq_rt_device",
                           "shardq_rt_alloc",
                           "shardq_rt_free",
                           "shardq_rt_launch",
                           "shardq_rt_begin_aside",
                           "shardq_rt_end_aside",
                           "shardq_rt_join_aside"})
    EXPECT_NE(dlsym(library, name), nullptr) << name;
  dlclose(library);
}
