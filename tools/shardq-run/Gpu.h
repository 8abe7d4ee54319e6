//===- Gpu.h - Device memory, streams and graphs of one rank ----*- C++ -*-===//
//
// What a program around compiled code has to bring: here it stands for an
// inference engine. The driver is opened at run time.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_GPU_H
#define SHARDQ_RUN_GPU_H

#include "Array.h"

#include <map>

namespace mlir::shardq::run {

class Gpu {
public:
  /// Opens device `ordinal` and makes its context current on this thread.
  static llvm::Expected<std::unique_ptr<Gpu>> open(int ordinal);
  ~Gpu();
  Gpu(const Gpu &) = delete;
  Gpu &operator=(const Gpu &) = delete;

  static llvm::Expected<int> getNumDevices();

  /// The stream that everything here, and the program, runs on.
  void *getStream() const { return stream; }

  /// Device memory, for as long as this lives.
  llvm::Expected<uint64_t> allocate(int64_t bytes);
  llvm::Error upload(uint64_t address, const Array &array);
  llvm::Error download(const Array &array, uint64_t address);
  llvm::Error fill(uint64_t address, uint8_t value, int64_t bytes);
  llvm::Error synchronize();

  /// Records what `body` enqueues as the graph of a slot.
  llvm::Error capture(int64_t slot, llvm::function_ref<llvm::Error()> body);
  /// Enqueues the slot's graph.
  llvm::Error replay(int64_t slot);
  void dropGraphs();

  /// Marks a point of the stream; the time between two, in microseconds, once
  /// both have passed.
  llvm::Error mark(unsigned event);
  llvm::Expected<double> getMicroseconds(unsigned first, unsigned last);

private:
  Gpu() = default;

  void *stream = nullptr;
  std::map<int64_t, void *> graphs; // by slot
  int device = 0;
  std::vector<uint64_t> allocations;
  std::vector<void *> events;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_GPU_H
