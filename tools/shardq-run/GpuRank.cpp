//===- GpuRank.cpp - One rank's program on its GPU ------------------------===//

#include "GpuRank.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// Trials of replays, of which the median counts.
static constexpr int kTrials = 7;
/// Calls by themselves.
static constexpr int kRuns = 30;
/// Of the calls whose kernels are timed; each comes behind one that is not, so
/// that the host is ahead of the device.
static constexpr int kKernelRuns = 9;

llvm::Error GpuRank::prepare(ArrayRef<Array> locals,
                             ArrayRef<int64_t> numRows) {
  for (const Array &local : locals) {
    Program::DeviceValue value;
    value.array = local;
    llvm::Expected<uint64_t> address = gpu.allocate(local.getNumBytes());
    if (!address)
      return address.takeError();
    value.address = *address;
    arguments.push_back(std::move(value));
  }
  for (auto [i, type] : llvm::enumerate(program.getResultTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    for (auto [dim, size] : llvm::enumerate(shape)) {
      if (!ShapedType::isDynamic(size))
        continue;
      if (dim != 0)
        return makeError("result %zu leaves dimension %zu open: its size "
                         "cannot be told before the run",
                         size_t(i), size_t(dim));
      size = numRows[i];
    }
    Program::DeviceValue value;
    llvm::Expected<Array> array =
        allocateArray(*getElement(type), shape, "result " + llvm::Twine(i));
    if (!array)
      return array.takeError();
    value.array = *array;
    llvm::Expected<uint64_t> address = gpu.allocate(array->getNumBytes());
    if (!address)
      return address.takeError();
    value.address = *address;
    results.push_back(std::move(value));
  }
  return upload(locals);
}

llvm::Error GpuRank::upload(ArrayRef<Array> locals) {
  for (auto [argument, local] : llvm::zip_equal(arguments, locals)) {
    // Numbers are read from the array.
    argument.array = local;
    if (llvm::Error error = gpu.upload(argument.address, local))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error GpuRank::run(shardq_context *context, std::vector<Array> &outputs,
                         std::optional<int64_t> slot) {
  for (const Program::DeviceValue &result : results)
    if (llvm::Error error =
            gpu.fill(result.address, 0xff, result.array.getNumBytes()))
      return error;
  llvm::Error started = slot ? gpu.replay(*slot) : enqueue(context);
  if (started)
    return started;
  if (llvm::Error error = gpu.synchronize())
    return error;
  for (auto [i, result] : llvm::enumerate(results)) {
    llvm::Expected<Array> copy =
        allocateArray(result.array.element, result.array.shape, "a result");
    if (!copy)
      return copy.takeError();
    if (llvm::Error error = gpu.download(*copy, result.address))
      return error;
    outputs.push_back(std::move(*copy));
  }
  return llvm::Error::success();
}

llvm::Error GpuRank::capture(shardq_context *context, int64_t slot) {
  return gpu.capture(slot, [&] { return enqueue(context); });
}

llvm::Error GpuRank::enqueue(shardq_context *context) {
  return program.enqueue(context, gpu.getStream(), arguments, results);
}

llvm::Error GpuRank::timeReplays(int64_t replays, std::vector<double> &trials) {
  for (int trial = -1; trial < kTrials; ++trial) {
    if (llvm::Error error = gpu.mark(0))
      return error;
    for (int64_t i = 0; i < replays; ++i)
      if (llvm::Error error = gpu.replay(/*slot=*/0))
        return error;
    if (llvm::Error error = gpu.mark(1))
      return error;
    if (llvm::Error error = gpu.synchronize())
      return error;
    llvm::Expected<double> total = gpu.getMicroseconds(0, 1);
    if (!total)
      return total.takeError();
    if (trial >= 0)
      trials.push_back(*total / double(replays));
  }
  return llvm::Error::success();
}

llvm::Error GpuRank::timeCalls(shardq_context *context,
                               std::vector<double> &runs) {
  for (int run = -3; run < kRuns; ++run) {
    if (llvm::Error error = gpu.mark(0))
      return error;
    if (llvm::Error error = enqueue(context))
      return error;
    if (llvm::Error error = gpu.mark(1))
      return error;
    if (llvm::Error error = gpu.synchronize())
      return error;
    llvm::Expected<double> time = gpu.getMicroseconds(0, 1);
    if (!time)
      return time.takeError();
    if (run >= 0)
      runs.push_back(*time);
  }
  return llvm::Error::success();
}

llvm::Error GpuRank::timeKernels(shardq_context *context,
                                 std::vector<KernelTimes> &kernels) {
  struct Marks {
    Gpu &gpu;
    std::vector<std::string> names;
    llvm::Error error = llvm::Error::success();
  };
  for (int run = -1; run < kKernelRuns; ++run) {
    if (llvm::Error error = enqueue(context))
      return error;
    Marks marks{gpu, {}};
    shardq_context_set_launch_callback(
        context,
        [](void *user, const char *kernel) {
          auto &marks = *static_cast<Marks *>(user);
          marks.error = llvm::joinErrors(std::move(marks.error),
                                         marks.gpu.mark(marks.names.size()));
          marks.names.emplace_back(kernel);
        },
        &marks);
    llvm::Error failed = enqueue(context);
    shardq_context_set_launch_callback(context, nullptr, nullptr);
    failed = llvm::joinErrors(std::move(failed), std::move(marks.error));
    if (failed)
      return failed;
    if (llvm::Error error = gpu.mark(marks.names.size()))
      return error;
    if (llvm::Error error = gpu.synchronize())
      return error;
    kernels.resize(marks.names.size());
    for (auto [i, kernel] : llvm::enumerate(kernels)) {
      kernel.kernel = marks.names[i];
      llvm::Expected<double> time = gpu.getMicroseconds(i, i + 1);
      if (!time)
        return time.takeError();
      if (run >= 0)
        kernel.microseconds.push_back(*time);
    }
  }
  return llvm::Error::success();
}

llvm::Error GpuRank::time(shardq_context *context, int64_t replays,
                          BenchTimes &times) {
  if (llvm::Error error = timeReplays(replays, times.graph))
    return error;
  if (llvm::Error error = timeCalls(context, times.alone))
    return error;
  return timeKernels(context, times.kernels);
}
