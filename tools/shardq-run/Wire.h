//===- Wire.h - Values as bytes between processes ---------------*- C++ -*-===//

#ifndef SHARDQ_RUN_WIRE_H
#define SHARDQ_RUN_WIRE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace mlir::shardq::run {

class WireWriter {
public:
  void put(int64_t value) { putBytes(&value, sizeof(value)); }
  void put(llvm::StringRef text) {
    put(int64_t(text.size()));
    putBytes(text.data(), text.size());
  }
  template <typename T> void putList(llvm::ArrayRef<T> values) {
    put(llvm::StringRef(reinterpret_cast<const char *>(values.data()),
                        values.size() * sizeof(T)));
  }
  const std::string &getBytes() const { return bytes; }

private:
  void putBytes(const void *data, size_t size) {
    bytes.append(static_cast<const char *>(data), size);
  }
  std::string bytes;
};

/// Reads what a WireWriter wrote. The writer may have died half way: whatever
/// is not there reads as zero or empty, and `ok` says so.
class WireReader {
public:
  explicit WireReader(llvm::StringRef bytes) : rest(bytes) {}

  int64_t takeInt() {
    int64_t value = 0;
    if (rest.size() < sizeof(value)) {
      good = false;
      return 0;
    }
    std::memcpy(&value, rest.data(), sizeof(value));
    rest = rest.drop_front(sizeof(value));
    return value;
  }
  llvm::StringRef takeText() {
    uint64_t size = uint64_t(takeInt());
    if (size > rest.size()) {
      good = false;
      return {};
    }
    llvm::StringRef text = rest.take_front(size);
    rest = rest.drop_front(size);
    return text;
  }
  template <typename T> std::vector<T> takeList() {
    llvm::StringRef text = takeText();
    std::vector<T> values(text.size() / sizeof(T));
    if (!values.empty())
      std::memcpy(values.data(), text.data(), values.size() * sizeof(T));
    return values;
  }
  bool ok() const { return good; }

private:
  llvm::StringRef rest;
  bool good = true;
};

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_WIRE_H
