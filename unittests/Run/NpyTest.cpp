//===- NpyTest.cpp - Arrays in .npy files ---------------------------------===//

#include "Npy.h"
#include "Helpers.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir::shardq::run;
using llvm::StringRef;

/// A file of version 1.0 with this header and these bytes of data.
static std::string makeFile(std::string header, StringRef data,
                            StringRef version = StringRef("\x01\x00", 2)) {
  header += '\n';
  std::string file = "\x93NUMPY" + version.str();
  file += char(header.size() & 0xff);
  file += char(header.size() >> 8);
  if (version[0] == 2)
    file += std::string(2, '\0');
  return file + header + data.str();
}

static std::string makeHeader(StringRef descr, StringRef shape,
                              StringRef order = "False") {
  return ("{'descr': '" + descr + "', 'fortran_order': " + order +
          ", 'shape': " + shape + ", }")
      .str();
}

TEST(Npy, ReadsEveryElement) {
  struct {
    const char *descr;
    Element element;
    size_t bytes;
  } cases[] = {{"<f4", Element::F32, 4},  {"<f2", Element::F16, 2},
               {"<u2", Element::BF16, 2}, {"|V2", Element::BF16, 2},
               {"<V2", Element::BF16, 2}, {"<i4", Element::I32, 4},
               {"<i8", Element::I64, 8},  {"|b1", Element::I1, 1}};
  for (auto &c : cases) {
    std::string data(6 * c.bytes, '\0');
    data[c.bytes] = 1;
    auto array = parseNpy(makeFile(makeHeader(c.descr, "(2, 3)"), data));
    ASSERT_TRUE(bool(array)) << c.descr << llvm::toString(array.takeError());
    EXPECT_EQ(array->element, c.element);
    EXPECT_EQ(array->getNumRows(), 2);
    EXPECT_EQ(array->getRowElements(), 3);
    EXPECT_EQ(array->data.get()[c.bytes], 1);
  }
}

TEST(Npy, ReadsScalarsEmptyArraysAndVersion2) {
  auto scalar = parseNpy(
      makeFile(makeHeader("<i8", "()"), StringRef("\x07\0\0\0\0\0\0\0", 8)));
  ASSERT_TRUE(bool(scalar));
  EXPECT_EQ(scalar->getInt(0), 7);
  auto empty = parseNpy(makeFile(makeHeader("<f4", "(0, 99999999999)"), ""));
  ASSERT_TRUE(bool(empty)) << llvm::toString(empty.takeError());
  EXPECT_EQ(empty->getNumElements(), 0);
  auto second = parseNpy(
      makeFile(makeHeader("<f4", "(1,)"), "abcd", StringRef("\x02\x00", 2)));
  EXPECT_EQ(getError(std::move(second)), "");
  // One-dimensional arrays are of both orders.
  EXPECT_EQ(
      getError(parseNpy(makeFile(makeHeader("<f4", "(1,)", "True"), "abcd"))),
      "");
}

TEST(Npy, RefusesWhatItCannotRead) {
  auto expectError = [](const std::string &file, StringRef part) {
    std::string error = getError(parseNpy(file));
    EXPECT_NE(error.find(part.str()), std::string::npos) << error;
  };
  expectError("", "does not begin with");
  expectError("\x93NUMP", "does not begin with");
  expectError("\x93NUMPY", "truncated in front of the version");
  expectError(std::string("\x93NUMPY\x03\x00", 8), "version 3.0");
  expectError(std::string("\x93NUMPY\x01\x00\x10", 9), "header's length");
  expectError(std::string("\x93NUMPY\x01\x00\x10\x00{", 11), "1 bytes of 16");
  expectError(makeFile("x", ""), "does not begin with '{'");
  expectError(makeFile("{'descr'", ""), "malformed key");
  expectError(makeFile("{'descr': 7}", ""), "malformed value of 'descr'");
  expectError(makeFile("{'descr': '<f4' 'shape': ()}", ""), "lacks a ','");
  expectError(makeFile("{'descr': '<f4'}", ""), "lacks 'descr'");
  expectError(makeFile("{'other': 1}", ""), "unknown key 'other'");
  expectError(makeFile(makeHeader("<f4", "()") + "x", "abcd"), "text behind");
  expectError(makeFile(makeHeader(">f4", "(1,)"), "abcd"), "'>f4'");
  expectError(makeFile(makeHeader("<f8", "(1,)"), "abcdefgh"), "'<f8'");
  expectError(makeFile(makeHeader("<f4", "(-1,)"), "abcd"),
              "malformed value of 'shape'");
  expectError(makeFile(makeHeader("<f4", "(99999999999999999999,)"), "abcd"),
              "malformed value of 'shape'");
  expectError(makeFile(makeHeader("<f4", "(2,)"), "abcd"), "4 bytes of data");
  expectError(makeFile(makeHeader("<f4", "(1,)"), "abcde"), "5 bytes of data");
  expectError(makeFile(makeHeader("<f4", "(4611686018427387904, 4)"), ""),
              "does not agree");
  expectError(makeFile(makeHeader("<f4", "(1, 1)", "True"), "abcd"),
              "column-major");
  // Every prefix of a good file is an error, not a crash.
  std::string good = makeFile(makeHeader("<f4", "(2,)"), "abcdefgh");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(getError(parseNpy(StringRef(good).take_front(size))), "");
}

TEST(Npy, WritesWhatItReads) {
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("shardq", "npy", path));
  Array array = makeArray(Element::BF16, {2, 2}, {1, -2.5, 0, 1e30});
  ASSERT_FALSE(bool(writeNpy(path, array)));
  auto back = readNpy(path);
  ASSERT_TRUE(bool(back)) << llvm::toString(back.takeError());
  EXPECT_EQ(back->element, Element::BF16);
  EXPECT_EQ(back->shape, array.shape);
  EXPECT_EQ(std::memcmp(back->data.get(), array.data.get(), 8), 0);
  // Data are aligned for mapping.
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(bool(buffer));
  EXPECT_EQ(((*buffer)->getBufferSize() - 8) % 64, 0u);
  (void)llvm::sys::fs::remove(path);
  EXPECT_NE(getError(readNpy(path)).find(path.str().str()), std::string::npos);
}

TEST(Array, RoundsToNearestEven) {
  EXPECT_EQ(roundToBF16(1.0f), 0x3f80);
  EXPECT_EQ(roundToBF16(1.00390625f), 0x3f80);   // halfway, even below
  EXPECT_EQ(roundToBF16(1.01171875f), 0x3f82);   // halfway, even above
  EXPECT_EQ(roundToBF16(3.4028235e38f), 0x7f80); // rounds to infinity
  EXPECT_EQ(roundToBF16(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(widenBF16(roundToBF16(float(kNaN)))));
  EXPECT_EQ(getUlp(Element::BF16, 1.0), std::ldexp(1.0, -7));
  EXPECT_EQ(getUlp(Element::F16, 0.0), std::ldexp(1.0, -24));
  EXPECT_EQ(getUlp(Element::F32, -3.0), std::ldexp(1.0, -22));
}

TEST(Array, RefusesSizesThatDoNotFit) {
  EXPECT_NE(getError(allocateArray(Element::F32, {1l << 40, 1l << 40}, "x")),
            "");
  EXPECT_NE(getError(allocateArray(Element::F32, {1l << 50}, "x")), "");
  EXPECT_NE(getError(allocateArray(Element::F32, {-1}, "x")), "");
  EXPECT_EQ(getError(allocateArray(Element::F32, {0, 1l << 62, 8}, "x")), "");
}
