//===- AddressRange.h - Addresses of all ranks' heaps on a GPU --*- C++ -*-===//

#ifndef SHARDQ_RUNTIME_CUDA_ADDRESSRANGE_H
#define SHARDQ_RUNTIME_CUDA_ADDRESSRANGE_H

#include "Driver.h"

#include <memory>
#include <vector>

namespace shardq::cuda {

/// Room for the heaps of all ranks at one stride. Ranks that are threads of one
/// process share it, so that no page has two addresses.
class AddressRange {
public:
  static Outcome reserve(const Driver &driver, uint64_t stride, int32_t world,
                         std::shared_ptr<AddressRange> &range);
  AddressRange(const AddressRange &) = delete;
  /// Unmaps everything; a context of the driver is current.
  ~AddressRange();

  /// Puts memory at the place of `rank` and lets the devices use it. Each rank
  /// is mapped once; different ones at the same time, too.
  Outcome map(int32_t rank, MemoryHandle memory,
              const std::vector<int> &devices);

  Address heap(int32_t rank) const {
    return base + static_cast<uint64_t>(rank) * stride;
  }

private:
  AddressRange(const Driver &driver, Address base, uint64_t stride,
               int32_t world)
      : driver(driver), base(base), stride(stride),
        mapped(static_cast<size_t>(world)) {}

  const Driver &driver;
  const Address base;
  const uint64_t stride;
  // Not bits, which threads could not write side by side.
  std::vector<char> mapped;
};

} // namespace shardq::cuda

#endif // SHARDQ_RUNTIME_CUDA_ADDRESSRANGE_H
