//===- ImportTest.cpp - Tensors of a caller are checked -------------------===//

#include "Ranks.h"
#include "shardq/tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

using namespace shardq::test;

namespace {

/// A memref descriptor of up to three dimensions.
using Descriptor = std::array<int64_t, 9>;

/// A float32 tensor and what the program says of it, each to be spoilt.
struct Case {
  std::vector<float> memory = std::vector<float>(64);
  std::vector<int64_t> shape = {3, 4}, strides = {4, 1};
  DLTensor tensor{};
  std::vector<int64_t> sizes = {-1, 4}, expected;
  shardq_tensor_spec spec{};
  int32_t device = kDLCPU;

  Case() {
    std::iota(memory.begin(), memory.end(), 0.0f);
    tensor.data = memory.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLFloat, 32, 1};
    spec = {"kv", nullptr, nullptr, 0, 3, kDLFloat, 32, 2, 16};
  }

  /// The message, empty if the tensor is right.
  std::string import(shardq_context *context, Descriptor &descriptor,
                     bool isNull = false) {
    tensor.shape = shape.data();
    if (!strides.empty())
      tensor.strides = strides.data();
    spec.sizes = sizes.data();
    spec.strides = expected.empty() ? nullptr : expected.data();
    shardq_function_spec function{
        sizeof(function), sizeof(spec), "attention", &spec, 1, device};
    const DLTensor *tensors[] = {isNull ? nullptr : &tensor};
    void *descriptors[] = {descriptor.data()};
    int32_t status = shardq_rt_import(context, &function, tensors, descriptors);
    char message[256];
    EXPECT_EQ(shardq_context_message(context, message, sizeof(message)),
              status);
    EXPECT_EQ(status, message[0] ? SHARDQ_INVALID : SHARDQ_OK);
    return message;
  }
};

/// Runs `body` with a context of a world of one rank, which stays sound.
void withContext(const std::function<void(shardq_context *)> &body) {
  TestPlan plan(1, 4);
  RankResult result =
      runThreads(1, plan.plan, {}, [&](shardq_comm *comm, RankResult &) {
        body(shardq_comm_context(comm, 0));
      }).front();
  EXPECT_TRUE(result.ran);
  EXPECT_EQ(result.status, SHARDQ_OK) << result.message;
}

/// What a tensor spoilt by `spoil` is refused for.
std::string refusal(const std::function<void(Case &)> &spoil) {
  std::string message;
  withContext([&](shardq_context *context) {
    Case one;
    spoil(one);
    Descriptor descriptor{};
    message = one.import(context, descriptor);
  });
  std::string prefix = "attention: argument 3 \"kv\": ";
  EXPECT_EQ(message.substr(0, prefix.size()), prefix);
  return message.substr(std::min(prefix.size(), message.size()));
}

} // namespace

TEST(Import, FillsDescriptors) {
  withContext([](shardq_context *context) {
    Case one;
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor), "");
    int64_t address = reinterpret_cast<intptr_t>(one.memory.data());
    EXPECT_EQ(descriptor, (Descriptor{address, address, 0, 3, 4, 4, 1}));

    // Without strides memory is contiguous.
    one.strides.clear();
    one.tensor.strides = nullptr;
    one.tensor.byte_offset = 16;
    EXPECT_EQ(one.import(context, descriptor), "");
    EXPECT_EQ(descriptor,
              (Descriptor{address + 16, address + 16, 0, 3, 4, 4, 1}));
  });
}

TEST(Import, StridesOfOneElementDoNotMatter) {
  withContext([](shardq_context *context) {
    Case one;
    one.shape = {1, 4};
    one.strides = {-77, 1};
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor), "");
    EXPECT_EQ(descriptor[5], 4);
  });
}

TEST(Import, EmptyTensorsNeedNoData) {
  withContext([](shardq_context *context) {
    Case one;
    one.shape = {0, 4};
    one.strides = {9, 9};
    one.tensor.data = nullptr;
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor), "");
    EXPECT_EQ(descriptor, (Descriptor{0, 0, 0, 0, 4, 4, 1}));
  });
}

TEST(Import, Strided) {
  withContext([](shardq_context *context) {
    Case one;
    one.strides = {12, 1};
    one.expected = {-1, 1};
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor), "");
    EXPECT_EQ(descriptor[5], 12);
    // One row for all.
    one.strides = {0, 1};
    EXPECT_EQ(one.import(context, descriptor), "");
  });
  EXPECT_EQ(refusal([](Case &one) {
              one.strides = {12, 2};
              one.expected = {-1, 1};
            }),
            "dimension 1 has stride 2, expected 1");
  EXPECT_EQ(refusal([](Case &one) {
              one.strides = {-12, 1};
              one.expected = {-1, 1};
            }),
            "dimension 0 has stride -12, expected 0 or more");
  EXPECT_EQ(refusal([](Case &one) {
              one.strides = {12, 1};
              one.expected = {8, 1};
            }),
            "dimension 0 has stride 12, expected 8");
}

TEST(Import, ResultsDoNotOverlap) {
  withContext([](shardq_context *context) {
    Case one;
    one.spec.is_result = 1;
    one.spec.name = nullptr;
    one.strides = {0, 1};
    one.expected = {-1, 1};
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor),
              "attention: result 3: dimension 0 has stride 0, expected "
              "elements of their own");
  });
}

TEST(Import, ElementTypes) {
  struct {
    DLDataType type;
    const char *name;
  } found[] = {{{kDLBfloat, 16, 1}, "bfloat16"},
               {{kDLFloat, 64, 1}, "float64"},
               {{kDLInt, 32, 1}, "int32"},
               {{kDLUInt, 8, 1}, "uint8"},
               {{6, 8, 1}, "bool"},
               {{10, 8, 1}, "float8_e4m3fn"},
               {{kDLFloat, 32, 4}, "float32x4"},
               {{77, 4, 1}, "type 77 of 4 bits"}};
  for (const auto &entry : found)
    EXPECT_EQ(refusal([&](Case &one) { one.tensor.dtype = entry.type; }),
              std::string("element type is ") + entry.name +
                  ", expected float32");
}

TEST(Import, BytesStandForTypesOfAByte) {
  withContext([](shardq_context *context) {
    for (uint8_t code : {uint8_t(kDLInt), uint8_t(kDLUInt), uint8_t(10)}) {
      Case one;
      one.spec.dtype_code = 10;
      one.spec.dtype_bits = 8;
      one.tensor.dtype = {code, 8, 1};
      Descriptor descriptor{};
      EXPECT_EQ(one.import(context, descriptor), "");
    }
  });
  EXPECT_EQ(refusal([](Case &one) {
              one.spec.dtype_code = 10;
              one.spec.dtype_bits = 8;
              one.tensor.dtype = {12, 8, 1};
            }),
            "element type is float8_e5m2, expected float8_e4m3fn");
}

TEST(Import, Shapes) {
  EXPECT_EQ(refusal([](Case &one) { one.tensor.ndim = 1; }),
            "has 1 dimension, expected 2");
  EXPECT_EQ(refusal([](Case &one) { one.tensor.ndim = 3; }),
            "has 3 dimensions, expected 2");
  EXPECT_EQ(refusal([](Case &one) { one.shape = {3, 5}; }),
            "dimension 1 has size 5, expected 4");
  EXPECT_EQ(refusal([](Case &one) { one.shape = {-3, 4}; }),
            "dimension 0 has size -3");
  EXPECT_EQ(refusal([](Case &one) { one.shape = {INT64_MAX, 4}; }),
            "has more bytes than memory has");
  EXPECT_EQ(refusal([](Case &one) { one.strides = {8, 1}; }),
            "is not contiguous: dimension 0 has stride 8, expected 4");
}

TEST(Import, Memory) {
  EXPECT_EQ(refusal([](Case &one) { one.tensor.data = nullptr; }),
            "has no data");
  EXPECT_EQ(refusal([](Case &one) { one.tensor.device = {kDLCUDA, 2}; }),
            "is on cuda:2, expected cpu");
  EXPECT_EQ(refusal([](Case &one) { one.tensor.device = {kDLROCM, 0}; }),
            "is on device 10:0, expected cpu");
  std::string message = refusal([](Case &one) { one.tensor.byte_offset = 4; });
  EXPECT_EQ(message.substr(0, 20), "starts at address 0x");
  EXPECT_NE(message.find(", expected a multiple of 16 bytes"),
            std::string::npos);
  withContext([](shardq_context *context) {
    Case one;
    one.tensor.device = {kDLCUDAHost, 0};
    Descriptor descriptor{};
    EXPECT_EQ(one.import(context, descriptor), "");
    EXPECT_EQ(one.import(context, descriptor, /*isNull=*/true),
              "attention: argument 3 \"kv\": is NULL");
    one.device = kDLCUDA;
    EXPECT_EQ(one.import(context, descriptor),
              "attention: is compiled for cuda, but the context's buffers are "
              "on cpu");
    // Refused calls leave nothing behind.
    one.device = kDLCPU;
    EXPECT_EQ(one.import(context, descriptor), "");
  });
}

TEST(Import, NullContext) {
  shardq_function_spec function{};
  EXPECT_EQ(shardq_rt_import(nullptr, &function, nullptr, nullptr),
            SHARDQ_INVALID);
  EXPECT_EQ(shardq_rt_export(nullptr, &function, 0, nullptr, nullptr,
                             SHARDQ_DEADLINE),
            SHARDQ_DEADLINE);
  char message[64];
  EXPECT_EQ(shardq_context_message(nullptr, message, sizeof(message)),
            SHARDQ_INVALID);
  EXPECT_STREQ(message, "context is NULL");
}

TEST(Import, TellsTheCommunicatorsError) {
  TestPlan plan(1, 4);
  runThreads(1, plan.plan, {}, [](shardq_comm *comm, RankResult &) {
    shardq_context *context = shardq_comm_context(comm, 0);
    shardq_comm_abort(comm);
    char message[128];
    EXPECT_EQ(shardq_context_message(context, message, sizeof(message)),
              SHARDQ_ABORTED);
    EXPECT_STREQ(message, "rank 0 aborted the group");
  });
}

TEST(Import, CopiesResultsBetweenLayouts) {
  withContext([](shardq_context *context) {
    int64_t sizes[] = {-1, 3, 2};
    shardq_tensor_spec spec{nullptr, sizes, nullptr, 1, 0, kDLInt, 32, 3, 4};
    shardq_function_spec function{
        sizeof(function), sizeof(spec), "f", &spec, 1, kDLCPU};
    std::vector<int32_t> from(12), to(40, -1);
    std::iota(from.begin(), from.end(), 0);
    int64_t source = reinterpret_cast<intptr_t>(from.data());
    int64_t target = reinterpret_cast<intptr_t>(to.data());
    // An offset counts elements; rows of the target lie 10 apart.
    Descriptor computed{source, source, 0, 2, 3, 2, 6, 2, 1};
    Descriptor wanted{target, target, 5, 2, 3, 2, 10, 2, 1};
    EXPECT_EQ(shardq_rt_export(context, &function, 0, computed.data(),
                               wanted.data(), SHARDQ_OK),
              SHARDQ_OK);
    for (int32_t i = 0; i != 40; ++i) {
      int32_t row = (i - 5) / 10, column = (i - 5) % 10;
      bool inside = i >= 5 && row < 2 && column < 6;
      EXPECT_EQ(to[size_t(i)], inside ? row * 6 + column : -1) << i;
    }
    // Columns first.
    Descriptor turned{target, target, 0, 2, 3, 2, 1, 2, 6};
    EXPECT_EQ(shardq_rt_export(context, &function, 0, computed.data(),
                               turned.data(), SHARDQ_OK),
              SHARDQ_OK);
    EXPECT_EQ(to[1], 6);
    EXPECT_EQ(to[2], 2);
    EXPECT_EQ(to[6], 1);

    // Nothing is copied after an error, nor where sizes differ.
    to.assign(40, -1);
    EXPECT_EQ(shardq_rt_export(context, &function, 0, computed.data(),
                               wanted.data(), SHARDQ_DEADLINE),
              SHARDQ_DEADLINE);
    wanted[3] = 3;
    EXPECT_EQ(shardq_rt_export(context, &function, 0, computed.data(),
                               wanted.data(), SHARDQ_OK),
              SHARDQ_INVALID);
    EXPECT_EQ(to, std::vector<int32_t>(40, -1));
    char message[128];
    EXPECT_EQ(shardq_context_message(context, message, sizeof(message)),
              SHARDQ_INVALID);
    EXPECT_STREQ(message,
                 "f: result 0: dimension 0 has size 3, the program made 2");
  });
}

TEST(Import, CopiesScalarsAndEmptyResults) {
  withContext([](shardq_context *context) {
    shardq_tensor_spec specs[2] = {
        {nullptr, nullptr, nullptr, 1, 0, kDLFloat, 64, 0, 8},
        {nullptr, nullptr, nullptr, 1, 1, kDLFloat, 64, 2, 8}};
    shardq_function_spec function{
        sizeof(function), sizeof(specs[0]), "f", specs, 2, kDLCPU};
    double from = 0.25, to = 0;
    Descriptor computed{reinterpret_cast<intptr_t>(&from),
                        reinterpret_cast<intptr_t>(&from)};
    Descriptor wanted{reinterpret_cast<intptr_t>(&to),
                      reinterpret_cast<intptr_t>(&to)};
    EXPECT_EQ(shardq_rt_export(context, &function, 0, computed.data(),
                               wanted.data(), SHARDQ_OK),
              SHARDQ_OK);
    EXPECT_EQ(to, 0.25);
    Descriptor none{0, 0, 0, 4, 0, 0, 1};
    EXPECT_EQ(shardq_rt_export(context, &function, 1, none.data(), none.data(),
                               SHARDQ_OK),
              SHARDQ_OK);
  });
}
