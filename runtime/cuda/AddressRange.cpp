//===- AddressRange.cpp - Addresses of all ranks' heaps on a GPU ----------===//

#include "AddressRange.h"

using namespace shardq;
using namespace shardq::cuda;

Outcome AddressRange::reserve(const Driver &driver, uint64_t stride,
                              int32_t world,
                              std::shared_ptr<AddressRange> &range) {
  uint64_t length;
  if (__builtin_mul_overflow(stride, static_cast<uint64_t>(world), &length))
    return failure(SHARDQ_SYSTEM, "heaps of %llu bytes do not fit",
                   (unsigned long long)stride);
  Address base = 0;
  if (Result result = driver.reserveAddress(&base, length, 0, 0, 0))
    return driver.failed("cuMemAddressReserve of the heaps", result);
  range.reset(new AddressRange(driver, base, stride, world));
  return {};
}

AddressRange::~AddressRange() {
  for (size_t rank = 0; rank != mapped.size(); ++rank)
    if (mapped[rank])
      driver.unmapMemory(heap(static_cast<int32_t>(rank)), stride);
  driver.freeAddress(base, stride * mapped.size());
}

Outcome AddressRange::map(int32_t rank, MemoryHandle memory,
                          const std::vector<int> &devices) {
  if (Result result = driver.mapMemory(heap(rank), stride, 0, memory, 0))
    return driver.failed("cuMemMap of a heap", result);
  mapped[static_cast<size_t>(rank)] = 1;
  std::vector<AccessDescription> access;
  for (int device : devices)
    access.push_back({{kLocationDevice, device}, kAccessReadWrite});
  if (Result result =
          driver.setAccess(heap(rank), stride, access.data(), access.size())) {
    Outcome outcome = driver.failed("cuMemSetAccess", result);
    return failure(SHARDQ_UNREACHABLE,
                   "the GPU memory of rank %d is out of reach: %s", rank,
                   outcome.text.c_str());
  }
  return {};
}
