//===- Import.cpp - DLPack tensors of a caller ----------------------------===//

#include "shardq/tensor.h"

#include "Communicator.h"

#include <algorithm>
#include <cstring>
#include <new>

using namespace shardq;

// The compiler writes both, see lib/Conversion/Runtime/EntryPoints.cpp.
static_assert(sizeof(shardq_function_spec) == 40);
static_assert(sizeof(shardq_tensor_spec) == 48);

namespace {

/// A memref descriptor: pointer twice, offset, sizes, strides.
class Buffer {
public:
  Buffer(void *words, int32_t rank)
      : words(static_cast<int64_t *>(words)), rank(rank) {}

  void setData(void *data) {
    std::memcpy(&words[0], &data, sizeof(data));
    std::memcpy(&words[1], &data, sizeof(data));
    words[2] = 0;
  }
  char *data(int64_t elementBytes) const {
    char *aligned;
    std::memcpy(&aligned, &words[1], sizeof(aligned));
    return aligned + words[2] * elementBytes;
  }
  int64_t &size(int32_t dim) const { return words[3 + dim]; }
  int64_t &stride(int32_t dim) const { return words[3 + rank + dim]; }

private:
  int64_t *words;
  int32_t rank;
};

/// One tensor of a call, while it is looked at.
class Import {
public:
  Import(const shardq_function_spec &function, const shardq_tensor_spec &spec,
         DLDevice device)
      : function(function), spec(spec), device(device) {}

  /// The error, or nothing.
  std::string run(const DLTensor *tensor, Buffer buffer);

  /// A message about this tensor.
  std::string fault(const std::string &text) const;

private:
  std::string checkType(const DLTensor &tensor) const;
  std::string checkSizes(const DLTensor &tensor, Buffer buffer);
  std::string checkStrides(const DLTensor &tensor, Buffer buffer) const;
  std::string checkData(const DLTensor &tensor, Buffer buffer) const;

  const shardq_function_spec &function;
  const shardq_tensor_spec &spec;
  DLDevice device; // of the context
  bool empty = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

/// As frameworks call them: "bfloat16", "int32".
static std::string nameType(int32_t code, int32_t bits, int32_t lanes) {
  // DLPack's numbers; its newer ones are not in every dlpack.h.
  static constexpr const char *kNames[] = {
      "int",           "uint",
      "float",         "opaque",
      "bfloat",        "complex",
      "bool",          "float8_e3m4",
      "float8_e4m3",   "float8_e4m3b11fnuz",
      "float8_e4m3fn", "float8_e4m3fnuz",
      "float8_e5m2",   "float8_e5m2fnuz"};
  constexpr int32_t kBool = 6;
  std::string name;
  if (code < 0 || code >= static_cast<int32_t>(std::size(kNames)))
    name = format("type %d of %d bits", code, bits);
  else if (code >= kBool)
    name = kNames[code];
  else
    name = format("%s%d", kNames[code], bits);
  return lanes == 1 ? name : format("%sx%d", name.c_str(), lanes);
}

static std::string nameDevice(DLDevice device) {
  switch (static_cast<int>(device.device_type)) {
  case kDLCPU:
    return "cpu";
  case kDLCUDA:
    return format("cuda:%d", device.device_id);
  default:
    return format("device %d:%d", static_cast<int>(device.device_type),
                  device.device_id);
  }
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

std::string Import::fault(const std::string &text) const {
  std::string name = spec.name ? format(" \"%s\"", spec.name) : std::string();
  return format("%s: %s %d%s: %s", function.name,
                spec.is_result ? "result" : "argument", spec.number,
                name.c_str(), text.c_str());
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

std::string Import::checkType(const DLTensor &tensor) const {
  // Memory that both sides can use passes for either.
  int type = tensor.device.device_type;
  bool reachable = device.device_type == kDLCPU
                       ? type == kDLCPU || type == kDLCUDAHost
                       : type == kDLCUDAManaged ||
                             (type == device.device_type &&
                              tensor.device.device_id == device.device_id);
  if (!reachable)
    return format("is on %s, expected %s", nameDevice(tensor.device).c_str(),
                  nameDevice(device).c_str());

  const DLDataType &found = tensor.dtype;
  bool bytes =
      spec.dtype_bits == 8 && (found.code == kDLInt || found.code == kDLUInt);
  if ((found.code != spec.dtype_code && !bytes) ||
      found.bits != spec.dtype_bits || found.lanes != 1)
    return format("element type is %s, expected %s",
                  nameType(found.code, found.bits, found.lanes).c_str(),
                  nameType(spec.dtype_code, spec.dtype_bits, 1).c_str());
  return {};
}

std::string Import::checkSizes(const DLTensor &tensor, Buffer buffer) {
  if (tensor.ndim != spec.rank)
    return format("has %d dimension%s, expected %d", tensor.ndim,
                  plural(tensor.ndim), spec.rank);
  if (!tensor.shape && spec.rank > 0)
    return "has no shape";
  int64_t bytes = spec.dtype_bits / 8;
  bool overflow = false;
  for (int32_t d = 0; d != spec.rank; ++d) {
    int64_t size = tensor.shape[d];
    if (spec.sizes[d] >= 0 && size != spec.sizes[d])
      return format("dimension %d has size %lld, expected %lld", d,
                    static_cast<long long>(size),
                    static_cast<long long>(spec.sizes[d]));
    if (size < 0)
      return format("dimension %d has size %lld", d,
                    static_cast<long long>(size));
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(bytes, size, &bytes);
    buffer.size(d) = size;
  }
  return overflow && !empty ? "has more bytes than memory has" : "";
}

std::string Import::checkStrides(const DLTensor &tensor, Buffer buffer) const {
  int64_t contiguous = 1;
  for (int32_t d = spec.rank; d-- > 0;) {
    int64_t expected = spec.strides ? spec.strides[d] : contiguous;
    int64_t found = tensor.strides ? tensor.strides[d] : contiguous;
    // Nothing is multiplied by the stride of a dimension of one element, and
    // frameworks put anything there.
    if (empty || tensor.shape[d] == 1)
      found = expected < 0 ? contiguous : expected;
    if (expected >= 0 && found != expected)
      return format("%sdimension %d has stride %lld, expected %lld",
                    spec.strides ? "" : "is not contiguous: ", d,
                    static_cast<long long>(found),
                    static_cast<long long>(expected));
    if (found < 0 || (found == 0 && spec.is_result && !empty))
      return format("dimension %d has stride %lld, expected %s", d,
                    static_cast<long long>(found),
                    spec.is_result ? "elements of their own" : "0 or more");
    buffer.stride(d) = found;
    contiguous *= std::max<int64_t>(tensor.shape[d], 1);
  }
  return {};
}

std::string Import::checkData(const DLTensor &tensor, Buffer buffer) const {
  if (!tensor.data && !empty)
    return "has no data";
  char *data = static_cast<char *>(tensor.data);
  if (data)
    data += tensor.byte_offset;
  uintptr_t alignment = static_cast<uintptr_t>(spec.alignment);
  if (!empty && reinterpret_cast<uintptr_t>(data) % alignment != 0)
    return format("starts at address %p, expected a multiple of %d bytes",
                  static_cast<void *>(data), spec.alignment);
  buffer.setData(data);
  return {};
}

std::string Import::run(const DLTensor *tensor, Buffer buffer) {
  if (!tensor)
    return fault("is NULL");
  std::string text = checkType(*tensor);
  if (text.empty())
    text = checkSizes(*tensor, buffer);
  if (text.empty())
    text = checkStrides(*tensor, buffer);
  if (text.empty())
    text = checkData(*tensor, buffer);
  return text.empty() ? text : fault(text);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Where the buffers of a context are.
static DLDevice getDevice(const shardq_context &context) {
  if (const auto &gpu = context.comm.gpu)
    return {kDLCUDA, gpu->getOrdinal()};
  return {kDLCPU, 0};
}

/// The n-th spec, of whatever size the compiler's is.
static const shardq_tensor_spec &getTensor(const shardq_function_spec &function,
                                           int32_t index) {
  const char *first = reinterpret_cast<const char *>(function.tensors);
  return *reinterpret_cast<const shardq_tensor_spec *>(
      first + static_cast<size_t>(index) * function.tensor_size);
}

static std::string importAll(const shardq_context &context,
                             const shardq_function_spec &function,
                             const DLTensor *const *tensors,
                             void *const *descriptors) {
  DLDevice device = getDevice(context);
  if (static_cast<int32_t>(device.device_type) != function.device_type)
    return format("%s: is compiled for %s, but the context's buffers are on %s",
                  function.name,
                  function.device_type == kDLCPU ? "cpu" : "cuda",
                  nameDevice(device).c_str());
  for (int32_t i = 0; i != function.num_tensors; ++i) {
    const shardq_tensor_spec &spec = getTensor(function, i);
    std::string text = Import(function, spec, device)
                           .run(tensors[i], Buffer(descriptors[i], spec.rank));
    if (!text.empty())
      return text;
  }
  return {};
}

/// Keeps a call's error for shardq_context_message.
static int32_t record(shardq_context &context, std::string text) {
  context.callStatus = text.empty() ? SHARDQ_OK : SHARDQ_INVALID;
  context.callError = std::move(text);
  return context.callStatus;
}
static int32_t recordNoMemory(shardq_context &context) {
  context.callStatus = SHARDQ_SYSTEM;
  context.callError.clear();
  return SHARDQ_SYSTEM;
}

int32_t shardq_rt_import(shardq_context *context,
                         const shardq_function_spec *function,
                         const DLTensor *const *tensors,
                         void *const *descriptors) {
  if (!context)
    return SHARDQ_INVALID;
  try {
    return record(*context,
                  importAll(*context, *function, tensors, descriptors));
  } catch (const std::bad_alloc &) {
    return recordNoMemory(*context);
  }
}

/// Copies a block of `rank - dim` dimensions.
static void copyBlock(const Buffer &from, const Buffer &to, int32_t dim,
                      int32_t rank, int64_t bytes, const char *source,
                      char *target) {
  if (dim == rank) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
    return;
  }
  // As much as lies one behind the other on both sides goes at once.
  int64_t run = 1;
  int32_t d = rank;
  while (d > dim && from.stride(d - 1) == run && to.stride(d - 1) == run)
    run *= from.size(--d);
  if (d == dim) {
    if (run > 0)
      std::memcpy(target, source, static_cast<size_t>(run * bytes));
    return;
  }
  for (int64_t i = 0; i != from.size(dim); ++i)
    copyBlock(from, to, dim + 1, rank, bytes,
              source + i * from.stride(dim) * bytes,
              target + i * to.stride(dim) * bytes);
}

/// The first size of a result that differs; empty if none does.
static std::string compareSizes(const shardq_function_spec &function,
                                const shardq_tensor_spec &spec,
                                const Buffer &computed, const Buffer &wanted) {
  for (int32_t d = 0; d != spec.rank; ++d)
    if (computed.size(d) != wanted.size(d))
      return Import(function, spec, {kDLCPU, 0})
          .fault(format("dimension %d has size %lld, the program made %lld", d,
                        static_cast<long long>(wanted.size(d)),
                        static_cast<long long>(computed.size(d))));
  return {};
}

int32_t shardq_rt_export(shardq_context *context,
                         const shardq_function_spec *function, int32_t tensor,
                         const void *computed, const void *wanted,
                         int32_t status) {
  if (status != SHARDQ_OK || !context)
    return status;
  const shardq_tensor_spec &spec = getTensor(*function, tensor);
  Buffer from(const_cast<void *>(computed), spec.rank);
  Buffer to(const_cast<void *>(wanted), spec.rank);
  try {
    std::string text = compareSizes(*function, spec, from, to);
    if (!text.empty())
      return record(*context, std::move(text));
  } catch (const std::bad_alloc &) {
    return recordNoMemory(*context);
  }
  int64_t bytes = spec.dtype_bits / 8;
  copyBlock(from, to, 0, spec.rank, bytes, from.data(bytes), to.data(bytes));
  return SHARDQ_OK;
}

shardq_status shardq_context_message(shardq_context *context, char *message,
                                     size_t message_size) {
  if (!context || context->callStatus == SHARDQ_OK)
    return shardq_context_status(context, message, message_size);
  bool named = !context->callError.empty();
  copyMessage(named ? context->callError : "out of memory", message,
              message_size);
  return context->callStatus;
}
