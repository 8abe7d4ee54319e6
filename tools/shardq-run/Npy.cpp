//===- Npy.cpp - Arrays in .npy files -------------------------------------===//

#include "Npy.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

static constexpr StringLiteral kMagic("\x93NUMPY");

namespace {

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortranOrder;
  std::optional<SmallVector<int64_t, 4>> shape;
};

/// The header is the Python literal of a dict. Only what np.save writes is
/// taken: three known keys with a string, a bool and a tuple of integers.
class HeaderParser {
public:
  explicit HeaderParser(StringRef text) : rest(text) {}

  llvm::Expected<Header> parse() {
    Header header;
    if (!take('{'))
      return makeError("header does not begin with '{'");
    while (!take('}')) {
      std::optional<std::string> key = takeString();
      if (!key || !take(':'))
        return makeError("header has a malformed key");
      bool good = false;
      if (*key == "descr")
        good = (header.descr = takeString()).has_value();
      else if (*key == "fortran_order")
        good = (header.fortranOrder = takeBool()).has_value();
      else if (*key == "shape")
        good = (header.shape = takeShape()).has_value();
      else
        return makeError("header has the unknown key '" + llvm::Twine(*key) +
                         "'");
      if (!good)
        return makeError("header has a malformed value of '" +
                         llvm::Twine(*key) + "'");
      if (!take(',') && !rest.ltrim().starts_with("}"))
        return makeError("header lacks a ',' or '}' behind '" +
                         llvm::Twine(*key) + "'");
    }
    if (!rest.trim(" \n").empty())
      return makeError("header has text behind its '}'");
    if (!header.descr || !header.fortranOrder || !header.shape)
      return makeError("header lacks 'descr', 'fortran_order' or 'shape'");
    return header;
  }

private:
  bool take(char c) {
    rest = rest.ltrim();
    return rest.consume_front(StringRef(&c, 1));
  }

  std::optional<std::string> takeString() {
    rest = rest.ltrim();
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
      return std::nullopt;
    size_t end = rest.find(rest[0], 1);
    if (end == StringRef::npos)
      return std::nullopt;
    std::string text = rest.substr(1, end - 1).str();
    rest = rest.substr(end + 1);
    return text;
  }

  std::optional<bool> takeBool() {
    rest = rest.ltrim();
    if (rest.consume_front("True"))
      return true;
    if (rest.consume_front("False"))
      return false;
    return std::nullopt;
  }

  std::optional<SmallVector<int64_t, 4>> takeShape() {
    SmallVector<int64_t, 4> shape;
    if (!take('('))
      return std::nullopt;
    while (!take(')')) {
      rest = rest.ltrim();
      int64_t size;
      if (rest.consumeInteger(10, size) || size < 0)
        return std::nullopt;
      shape.push_back(size);
      if (!take(',') && !rest.ltrim().starts_with(")"))
        return std::nullopt;
    }
    return shape;
  }

  StringRef rest;
};

} // namespace

static std::optional<Element> elementOfDescr(StringRef descr) {
  return llvm::StringSwitch<std::optional<Element>>(descr)
      .Case("<f4", Element::F32)
      .Case("<f2", Element::F16)
      .Cases({"<u2", "<V2", "|V2"}, Element::BF16)
      .Case("<i4", Element::I32)
      .Case("<i8", Element::I64)
      .Case("|b1", Element::I1)
      .Cases({"|i1", "|u1"}, Element::I8)
      .Default(std::nullopt);
}

static StringRef descrOfElement(Element element) {
  static constexpr StringLiteral descrs[] = {"<u2", "<f2", "<f4", "|b1",
                                             "|i1", "<i4", "<i8"};
  return descrs[unsigned(element)];
}

llvm::Expected<Array> run::parseNpy(StringRef bytes) {
  if (!bytes.consume_front(kMagic))
    return makeError("not a .npy file: it does not begin with \\x93NUMPY");
  if (bytes.size() < 2)
    return makeError("truncated in front of the version");
  unsigned major = uint8_t(bytes[0]), minor = uint8_t(bytes[1]);
  if ((major != 1 && major != 2) || minor != 0)
    return makeError("version %u.%u of .npy is not supported (1.0 and 2.0 are)",
                     major, minor);
  bytes = bytes.drop_front(2);
  size_t lengthBytes = major == 1 ? 2 : 4;
  if (bytes.size() < lengthBytes)
    return makeError("truncated in the header's length");
  size_t length = major == 1 ? llvm::support::endian::read16le(bytes.data())
                             : llvm::support::endian::read32le(bytes.data());
  bytes = bytes.drop_front(lengthBytes);
  if (bytes.size() < length)
    return makeError("truncated in the header: %zu bytes of %zu", bytes.size(),
                     length);
  llvm::Expected<Header> header =
      HeaderParser(bytes.take_front(length)).parse();
  if (!header)
    return header.takeError();
  bytes = bytes.drop_front(length);

  std::optional<Element> element = elementOfDescr(*header->descr);
  if (!element)
    return makeError("element type '" + llvm::Twine(*header->descr) +
                     "' is not supported ('<f4', '<f2', '<u2' or '|V2' for "
                     "bf16, '<i4', '<i8', '|i1', '|u1' and '|b1' are)");
  if (*header->fortranOrder && header->shape->size() > 1)
    return makeError("column-major (fortran_order) arrays are not supported");

  // The file's size decides before anything of the claimed size is allocated.
  int64_t expected = getElementBytes(*element);
  bool overflow = false;
  for (int64_t size : *header->shape)
    overflow |= llvm::MulOverflow(expected, size, expected);
  if (llvm::is_contained(*header->shape, 0))
    expected = 0, overflow = false;
  if (overflow || uint64_t(expected) != bytes.size())
    return makeError("the shape " + describe(*element, *header->shape) +
                     " does not agree with the " + llvm::Twine(bytes.size()) +
                     " bytes of data in the file");
  llvm::Expected<Array> array =
      allocateArray(*element, *header->shape, "the array");
  if (array)
    std::memcpy(array->data.get(), bytes.data(), bytes.size());
  return array;
}

llvm::Expected<Array> run::readNpy(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return makeError(path + ": " + buffer.getError().message());
  llvm::Expected<Array> array = parseNpy((*buffer)->getBuffer());
  if (!array)
    return makeError(path + ": " + llvm::toString(array.takeError()));
  return array;
}

llvm::Error run::writeNpy(StringRef path, const Array &array) {
  std::string header = "{'descr': '" + descrOfElement(array.element).str() +
                       "', 'fortran_order': False, 'shape': (";
  for (int64_t size : array.shape)
    header += std::to_string(size) + ", ";
  header += "), }";
  // Data begin at a multiple of 64, so that NumPy can map the file.
  size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append(llvm::alignTo(unpadded, 64) - unpadded, ' ');
  header += '\n';

  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (error)
    return makeError(path + ": " + error.message());
  char length[2];
  llvm::support::endian::write16le(length, uint16_t(header.size()));
  out << kMagic << '\x01' << '\x00';
  out.write(length, 2);
  out << header;
  out.write(array.data.get(), array.getNumBytes());
  out.close();
  if (out.has_error()) {
    error = out.error();
    out.clear_error();
    return makeError(path + ": " + error.message());
  }
  return llvm::Error::success();
}
