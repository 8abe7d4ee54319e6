//===- Inputs.cpp - Global arrays for a program's arguments ---------------===//

#include "Inputs.h"
#include "Npy.h"
#include "Packed.h"
#include "Pages.h"
#include "shardq/split.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// Blocks of a cache that belong to no request.
static constexpr int64_t kSpareBlocks = 3;

namespace {

class InputMaker {
public:
  InputMaker(const Signature &signature, const InputOptions &options)
      : signature(signature), arguments(signature.arguments),
        seed(options.seed), given(arguments.size()) {
    inputs.arrays.resize(arguments.size());
    inputs.nullBlock = options.nullBlock;
  }

  llvm::Expected<Inputs> make(const InputOptions &options) {
    if (llvm::Error error = readFiles(options.files))
      return error;
    if (llvm::Error error = findStep(options.step))
      return error;
    // Caches and slots are filled by the tables that address them.
    for (bool tables : {true, false})
      for (auto [i, argument] : llvm::enumerate(arguments))
        if ((argument.role == Role::Table) == tables)
          if (llvm::Error error = makeArgument(i))
            return error;
    for (auto [i, argument] : llvm::enumerate(arguments))
      if (llvm::Error error = checkSizes(argument, inputs.arrays[i]))
        return error;
    return std::move(inputs);
  }

private:
  llvm::Error readFiles(ArrayRef<std::string> files);
  llvm::Error findStep(const std::optional<Step> &wanted);
  llvm::Error deriveStep();
  int64_t countDraftTokens() const;
  llvm::Error checkProgram();
  llvm::Error makeArgument(unsigned number);
  llvm::Error checkSizes(const Argument &argument, const Array &array);

  std::optional<int64_t> getExtent(unsigned number, unsigned dim);
  llvm::Error makePages(unsigned number);
  llvm::Expected<int64_t> countCacheRows(unsigned number);
  void fill(unsigned number, const Array &array);
  void fillCache(unsigned number, const Array &array);
  void fillSlots(const Argument &argument, const Array &array, Random &random);
  void fillZigzag(const Argument &argument, const Array &array);
  std::vector<int64_t> samplePositions(int64_t visible, int64_t count,
                                       Random &random);

  static std::string quote(const Argument &argument) {
    return "argument %" + argument.name;
  }
  /// Size of a dimension where the type or a given array says it.
  std::optional<int64_t> getKnown(unsigned number, unsigned dim) const {
    if (given[number])
      return inputs.arrays[number].shape[dim];
    auto shape = arguments[number].getGlobalShape();
    if (ShapedType::isDynamic(shape[dim]))
      return std::nullopt;
    return shape[dim];
  }
  /// The first known size of dimension 0 among arguments of a kind.
  template <typename Fn>
  std::optional<int64_t> getFirstKnown(Fn isOfKind) const {
    for (auto [i, argument] : llvm::enumerate(arguments))
      if (isa<ShapedType>(argument.type) && isOfKind(argument.role))
        if (std::optional<int64_t> size = getKnown(i, 0))
          return size;
    return std::nullopt;
  }
  const Array *getGiven(Role role) const {
    for (auto [i, argument] : llvm::enumerate(arguments))
      if (argument.role == role && given[i])
        return &inputs.arrays[i];
    return nullptr;
  }
  Random getRandom(unsigned number) const {
    // Two steps of the sequence separate seeds that differ by little.
    Random random(seed * 0x2545f4914f6cdd1d + number * 0xd1b54a32d192ed03);
    random.next();
    return Random(random.next());
  }

  const Signature &signature;
  ArrayRef<Argument> arguments;
  uint64_t seed;
  std::vector<bool> given;
  Inputs inputs;
  /// By the number of the table, or of the cache that has none.
  std::map<unsigned, Pages> pages;
};

} // namespace

//===----------------------------------------------------------------------===//
// Given arrays and the step
//===----------------------------------------------------------------------===//

llvm::Error InputMaker::readFiles(ArrayRef<std::string> files) {
  for (const std::string &file : files) {
    auto [name, path] = StringRef(file).split('=');
    if (path.empty())
      return makeError("--input=" + llvm::Twine(file) +
                       ": expected NAME=FILE.npy");
    std::optional<unsigned> number = signature.find(name);
    if (!number)
      return makeError("--input: the entry has no argument %" + name);
    const Argument &argument = arguments[*number];
    if (given[*number])
      return makeError("--input: " + quote(argument) + " is given twice");
    llvm::Expected<Array> array = readNpy(path);
    if (!array)
      return array.takeError();
    SmallVector<int64_t, 4> shape = argument.getGlobalShape();
    bool same = array->element == argument.element &&
                array->shape.size() == shape.size();
    for (size_t d = 0; same && d < shape.size(); ++d)
      same = ShapedType::isDynamic(shape[d]) || shape[d] == array->shape[d];
    if (!same)
      return makeError(quote(argument) + ": " + path + " holds " +
                       describe(*array) + ", expected " +
                       describe(argument.element, shape) +
                       (argument.split ? " (the global array)" : ""));
    inputs.arrays[*number] = std::move(*array);
    given[*number] = true;
  }
  return llvm::Error::success();
}

llvm::Error InputMaker::findStep(const std::optional<Step> &wanted) {
  if (wanted)
    inputs.step = *wanted;
  else if (llvm::Error error = deriveStep())
    return error;
  inputs.step.draftTokens = countDraftTokens();
  return checkProgram();
}

/// Of the program's draft steps, those whose numbers are given among them.
int64_t InputMaker::countDraftTokens() const {
  int64_t most = signature.draftTokens;
  for (auto [number, before] : signature.draftSteps)
    if (given[number]) {
      int64_t step = std::clamp<int64_t>(inputs.arrays[number].getInt(0), -1,
                                         std::numeric_limits<int32_t>::max());
      most = std::max(most, before + step + 1);
    }
  return most;
}

/// Without a step file the arrays say what the step is: query starts and
/// sequence lengths where they are given, else rows shared out evenly.
llvm::Error InputMaker::deriveStep() {
  Step &step = inputs.step;
  std::optional<int64_t> rows = getFirstKnown(isRowRole);
  if (const Array *count = getGiven(Role::Rows); count && !rows)
    rows = count->getInt(0);
  const Array *starts = getGiven(Role::QueryStart);
  const Array *lens = getGiven(Role::SeqLens);
  std::optional<int64_t> requests = getFirstKnown(
      [](Role role) { return role == Role::SeqLens || role == Role::Table; });
  if (auto size = getFirstKnown([](Role r) { return r == Role::QueryStart; }))
    requests = *size - 1;

  if (starts) {
    if (starts->getNumRows() < 1 || starts->getInt(0) != 0)
      return makeError("--input: query starts must begin with 0");
    for (int64_t r = 1; r < starts->getNumRows(); ++r) {
      int64_t len = starts->getInt(r) - starts->getInt(r - 1);
      if (len < 0)
        return makeError("--input: query start %ld is below the one before it",
                         long(r));
      step.queryLens.push_back(len);
    }
  } else {
    bool needsRows = llvm::any_of(arguments, [](const Argument &argument) {
      return isRowRole(argument.role) || argument.role == Role::Rows;
    });
    if (needsRows && !rows)
      return makeError("the number of rows is not known: give --step=FILE, or "
                       "--input for an argument that has one entry per row");
    int64_t count = requests.value_or(1);
    for (int64_t r = 0; r < count; ++r)
      step.queryLens.push_back(rows.value_or(0) * (r + 1) / count -
                               rows.value_or(0) * r / count);
  }
  if (lens && lens->getNumRows() != step.getNumRequests())
    return makeError("--input: %ld sequence lengths for %ld requests",
                     long(lens->getNumRows()), long(step.getNumRequests()));
  for (int64_t r = 0; r < step.getNumRequests(); ++r)
    step.contextLens.push_back(
        lens ? std::max<int64_t>(lens->getInt(r) - step.queryLens[r], 0) : 0);
  step.paddingRows =
      std::max<int64_t>(rows.value_or(0) - step.getNumTokens(), 0);
  return step.check();
}

/// What step and program both say must agree.
llvm::Error InputMaker::checkProgram() {
  Step &step = inputs.step;
  // Lists per row and per key are kept while inputs are made; given ones may
  // be of any lengths.
  int64_t keys = 0;
  bool anyMade = !llvm::all_of(given, [](bool isGiven) { return isGiven; });
  for (int64_t r = 0; anyMade && r < step.getNumRequests(); ++r)
    keys += step.getKvLen(r);
  for (int64_t size : {step.getNumRows(), keys})
    if (llvm::Expected<Array> probe =
            allocateArray(Element::I64, {size, 2}, "the step"))
      ;
    else
      return probe.takeError();
  auto agree = [](std::optional<int64_t> &field, std::optional<int64_t> ops,
                  int64_t otherwise, const char *name) -> llvm::Error {
    if (field && ops && *field != *ops)
      return makeError("the step's %s is %ld, the program's %ld", name,
                       long(*field), long(*ops));
    field = ops ? *ops : field.value_or(otherwise);
    return llvm::Error::success();
  };
  if (llvm::Error error =
          agree(step.blockSize, signature.blockSize, 64, "block_size"))
    return error;
  if (llvm::Error error =
          agree(step.speculativeTokens, signature.speculativeTokens, 0,
                "speculative_tokens"))
    return error;
  if (step.decodes && *step.decodes != step.getNumDecodes())
    return makeError("the step's decodes is %ld, but its first %ld requests "
                     "have at most %ld query tokens",
                     long(*step.decodes), long(step.getNumDecodes()),
                     long(1 + *step.speculativeTokens));
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// What the step says about a dimension; nothing where it says nothing.
std::optional<int64_t> InputMaker::getExtent(unsigned number, unsigned dim) {
  const Argument &argument = arguments[number];
  const Step &step = inputs.step;
  if (dim == 0 && isRowRole(argument.role))
    return step.getNumRows();
  switch (argument.role) {
  case Role::QueryStart:
    return step.getNumRequests() + 1;
  case Role::SeqLens:
    return step.getNumRequests();
  case Role::Table:
    if (dim == 0)
      return step.getNumRequests();
    return Pages::countWidth(step, argument.blockSize);
  case Role::WorkspaceStart:
    return step.getNumRequests() - step.getNumDecodes();
  case Role::Scores:
    return step.getMaxKvLen();
  case Role::Offsets:
    return signature.getNumRanks() + 1;
  case Role::After:
    if (dim == 0)
      return step.getDecodeRows();
    return std::nullopt;
  default:
    return std::nullopt;
  }
}

/// Given and static sizes against the step's.
llvm::Error InputMaker::checkSizes(const Argument &argument,
                                   const Array &array) {
  unsigned number = &argument - arguments.data();
  for (unsigned d = 0; d < array.shape.size(); ++d) {
    std::optional<int64_t> extent = getExtent(number, d);
    // A table may be wider and scores may be longer than the step needs, and
    // the offsets are those of the program's axis.
    bool atLeast = argument.role == Role::Table ||
                   argument.role == Role::Scores ||
                   argument.role == Role::WorkspaceStart;
    if (!extent || argument.role == Role::Offsets ||
        argument.role == Role::RowIds || array.shape[d] == *extent ||
        (atLeast && (d == 1 || array.shape.size() == 1) &&
         (array.shape[d] > *extent || given[number])))
      continue;
    return makeError(quote(argument) + " (" + getRoleName(argument.role) +
                     ") has size " + llvm::Twine(array.shape[d]) +
                     " in dimension " + llvm::Twine(d) + ", the step has " +
                     llvm::Twine(*extent));
  }
  if (argument.split &&
      array.shape[argument.split.getDim()] % argument.splitAxis.getSize() != 0)
    return makeError(quote(argument) + ": dimension " +
                     llvm::Twine(argument.split.getDim()) + " of " +
                     describe(array) + " is split over " +
                     llvm::Twine(argument.splitAxis.getSize()) +
                     " ranks, which do not divide it");
  return llvm::Error::success();
}

/// Deals out the blocks of a table, or of a cache without one. As many as the
/// smallest cache of the table has, or a few more than the step needs.
llvm::Error InputMaker::makePages(unsigned number) {
  const Argument &argument = arguments[number];
  // Those of a sharded cache are dealt anew, given or not.
  inputs.hasMadeTables |=
      argument.role == Role::Table && (!given[number] || argument.kvAxis);
  // Without a table any rows will do, and blocks of one use them all.
  int64_t blockSize = argument.blockSize ? argument.blockSize : 1;
  if (given[number] && argument.role == Role::Table) {
    const Array &array = inputs.arrays[number];
    Pages table{blockSize, 0, array.shape[1], {}};
    for (int64_t i = 0; i < array.getNumElements(); ++i) {
      table.table.push_back(int32_t(array.getInt(i)));
      table.numBlocks = std::max(table.numBlocks, array.getInt(i) + 1);
    }
    table.numBlocks += kSpareBlocks;
    pages.emplace(number, std::move(table));
    return llvm::Error::success();
  }
  int64_t needed = Pages::countBlocks(inputs.step, blockSize);
  int64_t blocks = needed + kSpareBlocks;
  for (auto [i, cache] : llvm::enumerate(arguments)) {
    if (cache.role != Role::Cache ||
        (i != number && cache.table != int(number)))
      continue;
    std::optional<int64_t> rows = getKnown(i, 0);
    int64_t stride = cache.blockStride ? cache.blockStride : blockSize;
    if (!rows)
      continue;
    // The last block needs its keys only, not the gap behind them.
    int64_t fits = *rows < blockSize ? 0 : (*rows - blockSize) / stride + 1;
    if (fits < needed)
      return makeError(quote(cache) + " has " + llvm::Twine(*rows) +
                       " rows, room for " + llvm::Twine(fits) +
                       " blocks; the step needs " + llvm::Twine(needed));
    blocks = std::min(blocks, fits);
  }
  if (blocks > std::numeric_limits<int32_t>::max())
    return makeError("the step needs more than 2^31 - 1 cache blocks");
  int64_t width = Pages::countWidth(inputs.step, blockSize);
  if (argument.role == Role::Table)
    if (std::optional<int64_t> known = getKnown(number, 1)) {
      if (*known < width)
        return makeError(quote(argument) + " has " + llvm::Twine(*known) +
                         " blocks per request; the step needs " +
                         llvm::Twine(width));
      width = *known;
    }
  Random random = getRandom(number);
  llvm::Expected<Array> probe = allocateArray(
      Element::I32, {inputs.step.getNumRequests(), width + 1}, quote(argument));
  if (!probe)
    return probe.takeError();
  pages.emplace(number, Pages::shuffled(inputs.step, blockSize, blocks, width,
                                        inputs.nullBlock, random));
  return llvm::Error::success();
}

/// Rows of a cache: its pages, then the workspace of the prefill requests.
llvm::Expected<int64_t> InputMaker::countCacheRows(unsigned number) {
  const Argument &cache = arguments[number];
  unsigned table = cache.table >= 0 ? cache.table : number;
  if (!pages.count(table))
    if (llvm::Error error = makePages(table))
      return error;
  const Pages &blocks = pages.at(table);
  int64_t stride = cache.blockStride ? cache.blockStride : blocks.blockSize;
  int64_t rows;
  if (llvm::MulOverflow(blocks.numBlocks, stride, rows))
    return makeError(quote(cache) + " would have more than 2^63 rows");
  if (cache.hasWorkspace)
    for (int64_t r = inputs.step.getNumDecodes();
         r < inputs.step.getNumRequests(); ++r)
      rows += inputs.step.getSeqLen(r);
  if (std::optional<int64_t> known = getKnown(number, 0)) {
    if (cache.hasWorkspace && *known < rows)
      return makeError(quote(cache) + " has " + llvm::Twine(*known) +
                       " rows; pages and prefill workspace of the step need " +
                       llvm::Twine(rows));
    return *known;
  }
  return rows;
}

llvm::Error InputMaker::makeArgument(unsigned number) {
  const Argument &argument = arguments[number];
  if (argument.role == Role::Table)
    if (llvm::Error error = makePages(number))
      return error;
  std::optional<int64_t> cacheRows;
  // A given cache may hold what it likes, unless a made-up table addresses it.
  if (argument.role == Role::Cache && (!given[number] || argument.table >= 0)) {
    llvm::Expected<int64_t> rows = countCacheRows(number);
    if (!rows)
      return rows.takeError();
    cacheRows = *rows;
  }
  if (given[number])
    return llvm::Error::success();

  func::FuncOp entry = signature.entry;
  bool unused = entry.getArgument(number).use_empty();
  SmallVector<int64_t, 4> shape = argument.getGlobalShape();
  for (unsigned d = 0; d < shape.size(); ++d) {
    if (!ShapedType::isDynamic(shape[d]))
      continue;
    std::optional<int64_t> extent =
        cacheRows && d == 0 ? cacheRows : getExtent(number, d);
    if (!extent && unused)
      extent = argument.split ? argument.splitAxis.getSize() : 1;
    if (!extent)
      return makeError("size " + llvm::Twine(d) + " of " + quote(argument) +
                       " does not follow from the step; give --input=" +
                       argument.name + "=FILE.npy");
    shape[d] = *extent;
  }
  // Random integers of an unknown meaning would only be out of range.
  if (argument.role == Role::Unknown && !isFloat(argument.element) && !unused)
    return makeError("what " + quote(argument) +
                     " is for does not follow from its uses; give --input=" +
                     argument.name + "=FILE.npy");
  llvm::Expected<Array> array =
      allocateArray(argument.element, shape, quote(argument));
  if (!array)
    return array.takeError();
  inputs.arrays[number] = std::move(*array);
  // Sizes are checked before contents are written by them.
  if (llvm::Error error = checkSizes(argument, inputs.arrays[number]))
    return error;
  fill(number, inputs.arrays[number]);
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

static void fillNormal(const Array &array, double deviation, Random &random) {
  Array target = array;
  for (int64_t i = 0, e = target.getNumElements(); i < e; ++i)
    target.setFloat(i, random.normal() * deviation);
}

template <typename T>
static void fillInts(const Array &array, ArrayRef<T> values) {
  Array target = array;
  for (int64_t i = 0, e = array.getNumElements(); i < e; ++i)
    target.setInt(i, i < int64_t(values.size()) ? values[i] : -1);
}

/// `count` distinct positions below `visible`, ascending.
std::vector<int64_t> InputMaker::samplePositions(int64_t visible, int64_t count,
                                                 Random &random) {
  std::vector<int64_t> chosen;
  // One pass takes each with the chance that leaves the right number.
  int64_t wanted = std::min(visible, count);
  for (int64_t position = 0; wanted > 0; ++position)
    if (random.below(visible - position) < wanted) {
      chosen.push_back(position);
      --wanted;
    }
  return chosen;
}

/// Packed rows of normal numbers; those of nobody read as NaN.
static void fillPacked(PackedRowsAttr format, const Array &array,
                       const std::vector<bool> &used, Random &random) {
  std::vector<float> values(format.getDim());
  for (int64_t row = 0; row < array.getNumRows(); ++row) {
    uint8_t *bytes = array.as<uint8_t>() + row * format.getNumBytes();
    std::memset(bytes, 0xff, format.getNumBytes());
    if (!used[row])
      continue;
    for (float &value : values)
      value = widenBF16(roundToBF16(float(random.normal())));
    packRow(format, values.data(), bytes);
  }
}

void InputMaker::fillCache(unsigned number, const Array &array) {
  const Argument &cache = arguments[number];
  const Pages &blocks = pages.at(cache.table >= 0 ? cache.table : number);
  int64_t stride = cache.blockStride ? cache.blockStride : blocks.blockSize;
  Array target = array;
  int64_t width = array.getRowElements();
  std::vector<bool> used(array.getNumRows());
  auto use = [&](int64_t row) {
    if (row >= 0 && row < array.getNumRows())
      used[row] = true;
  };
  int64_t requests =
      std::min<int64_t>(inputs.step.getNumRequests(),
                        blocks.width ? blocks.table.size() / blocks.width : 0);
  for (int64_t r = 0; r < requests; ++r)
    for (int64_t p = 0; p < inputs.step.getKvLen(r); ++p)
      use(blocks.getRow(r, p, stride));
  if (cache.hasWorkspace)
    for (int64_t row = blocks.numBlocks * stride; row < array.getNumRows();
         ++row)
      use(row);
  Random random = getRandom(number);
  if (cache.format && array.element == Element::I8)
    return fillPacked(cache.format, array, used, random);
  for (int64_t row = 0; row < array.getNumRows(); ++row)
    for (int64_t d = 0; d < width; ++d)
      target.setFloat(row * width + d,
                      used[row] ? random.normal()
                                : std::numeric_limits<double>::quiet_NaN());
}

void InputMaker::fillSlots(const Argument &argument, const Array &array,
                           Random &random) {
  Array target = array;
  int64_t width = array.getRowElements();
  std::vector<int32_t> requests = inputs.step.getRowRequests();
  std::vector<int32_t> visible = inputs.step.getRowVisible();
  const Pages *blocks = nullptr;
  int64_t stride = 0, cacheRows = 0;
  bool isMap = argument.role == Role::SlotMap;
  if ((argument.role == Role::Slots || isMap) && argument.cache >= 0) {
    const Argument &cache = arguments[argument.cache];
    unsigned table = cache.table >= 0 ? cache.table : argument.cache;
    if (given[argument.cache])
      cacheRows = inputs.arrays[argument.cache].getNumRows();
    else if (llvm::Expected<int64_t> rows = countCacheRows(argument.cache)) {
      blocks = &pages.at(table);
      stride = cache.blockStride ? cache.blockStride : blocks->blockSize;
    } else {
      // The cache's own turn reports it.
      llvm::consumeError(rows.takeError());
    }
  }
  for (int64_t row = 0; row < array.getNumRows(); ++row) {
    if (isMap) {
      // The row's own token, or a row of a cache of unknown contents.
      int64_t slot =
          blocks && requests[row] >= 0
              ? blocks->getRow(requests[row], visible[row] - 1, stride)
          : row < cacheRows ? row
                            : -1;
      target.setInt(row, slot);
      continue;
    }
    // A cache of unknown contents is all fair game.
    int64_t keys = cacheRows ? cacheRows : visible[row];
    std::vector<int64_t> chosen = samplePositions(keys, width, random);
    for (int64_t i = 0; i < width; ++i) {
      int64_t value = i < int64_t(chosen.size()) ? chosen[i] : -1;
      if (blocks && value >= 0)
        value = blocks->getRow(requests[row], value, stride);
      target.setInt(row * width + i, value);
    }
  }
}

void InputMaker::fillZigzag(const Argument &argument, const Array &array) {
  // The offsets' size tells the number of ranks, which ids alone do not.
  int64_t ranks = signature.getNumRanks();
  for (const Argument &other : arguments)
    if (other.role == Role::Offsets)
      if (auto shape = other.getGlobalShape(); !ShapedType::isDynamic(shape[0]))
        ranks = shape[0] - 1;
  ranks = std::clamp<int64_t>(ranks, 1, SHARDQ_MAX_RANKS);
  const Step &step = inputs.step;
  std::vector<int32_t> start = step.getQueryStart();
  std::vector<int32_t> ids(step.getNumRows()), offsets(ranks + 1);
  shardq_zigzag_split(start.data(), step.getNumRequests(), step.getDecodeRows(),
                      step.getNumRows(), ranks, ids.data(), offsets.data());
  fillInts<int32_t>(array, argument.role == Role::Offsets ? offsets : ids);
}

void InputMaker::fill(unsigned number, const Array &array) {
  const Argument &argument = arguments[number];
  const Step &step = inputs.step;
  Random random = getRandom(number);
  switch (argument.role) {
  case Role::QueryStart:
    return fillInts<int32_t>(array, step.getQueryStart());
  case Role::SeqLens:
    return fillInts<int32_t>(array, step.getSeqLens());
  case Role::Rows:
    return fillInts<int64_t>(array, step.getNumRows());
  case Role::Decodes:
    return fillInts<int64_t>(array, step.getDecodeRows());
  case Role::Table:
    return fillInts<int32_t>(array, pages.at(number).table);
  case Role::Req:
    return fillInts<int32_t>(array, step.getRowRequests());
  case Role::Visible:
    return fillInts<int32_t>(array, step.getRowVisible());
  case Role::Cache:
    return fillCache(number, array);
  case Role::Positions:
  case Role::Slots:
  case Role::SlotMap:
    return fillSlots(argument, array, random);
  case Role::TokenIds:
  case Role::Offsets:
    return fillZigzag(argument, array);
  case Role::Query:
    // Logits of deviation 1.5: neither flat nor decided by one key.
    return fillNormal(
        array,
        std::clamp(1.5 / std::max(std::abs(argument.scale), 1e-6), 1e-3, 1e3),
        random);
  case Role::Weights:
    return fillNormal(
        array,
        1 / std::sqrt(double(std::max<int64_t>(array.getRowElements(), 1))),
        random);
  case Role::Scores: {
    // Coarse values and both zeros, since ties are what goes wrong.
    Array target = array;
    for (int64_t i = 0, e = array.getNumElements(); i < e; ++i)
      target.setFloat(i, std::round(random.normal() * 8) / 8);
    return;
  }
  case Role::TopkLength: {
    // Now and then fewer than there are, or more than there can be.
    Array target = array;
    std::vector<int32_t> visible = step.getRowVisible();
    for (int64_t i = 0, e = array.getNumElements(); i < e; ++i) {
      int64_t length = std::min<int64_t>(visible[i], signature.topk);
      target.setInt(i, i % 7 == 3    ? length / 2
                       : i % 11 == 5 ? signature.topk + 5
                                     : length);
    }
    return;
  }
  case Role::PrefillReq: {
    std::vector<int32_t> requests = step.getRowRequests();
    for (int32_t &request : requests)
      request = std::max<int32_t>(request - int32_t(step.getNumDecodes()), -1);
    return fillInts<int32_t>(array, requests);
  }
  case Role::WorkspaceStart: {
    // Behind the pages of the largest cache that has a workspace.
    int64_t start = 0;
    for (auto [i, cache] : llvm::enumerate(arguments))
      if (cache.hasWorkspace &&
          pages.count(cache.table >= 0 ? cache.table : i)) {
        const Pages &blocks = pages.at(cache.table >= 0 ? cache.table : i);
        start = std::max(start, blocks.numBlocks * cache.blockStride);
      }
    std::vector<int64_t> starts;
    for (int64_t r = step.getNumDecodes(); r < step.getNumRequests(); ++r) {
      starts.push_back(start);
      start += step.getSeqLen(r);
    }
    return fillInts<int64_t>(array, starts);
  }
  case Role::RowIds: {
    std::vector<int64_t> rows(step.getNumRows());
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = i;
    random.shuffle(rows);
    return fillInts<int64_t>(array, rows);
  }
  case Role::Projection:
    return fillNormal(array, argument.scale, random);
  case Role::RowData:
  case Role::Sink:
  case Role::After:
  case Role::Unknown:
    if (isFloat(argument.element))
      fillNormal(array, 1, random);
    else if (argument.format && argument.element == Element::I8)
      fillPacked(argument.format, array,
                 std::vector<bool>(array.getNumRows(), true), random);
    else if (argument.element == Element::I8)
      for (int64_t i = 0, e = array.getNumElements(); i < e; ++i)
        array.as<uint8_t>()[i] = uint8_t(random.next());
    return;
  }
}

llvm::Expected<Inputs> run::makeInputs(const Signature &signature,
                                       const InputOptions &options) {
  return InputMaker(signature, options).make(options);
}

//===----------------------------------------------------------------------===//
// Blocks of ranks
//===----------------------------------------------------------------------===//

/// Calls `visit(global offset, local offset, bytes)` for each run of bytes
/// that is contiguous in both.
template <typename Fn>
static void forEachRun(const Array &local, const Array &global, unsigned dim,
                       int64_t block, Fn visit) {
  int64_t outer = 1, inner = getElementBytes(local.element);
  for (unsigned d = 0; d < dim; ++d)
    outer *= local.shape[d];
  for (unsigned d = dim; d < local.shape.size(); ++d)
    inner *= local.shape[d];
  int64_t parts = local.shape[dim] ? global.shape[dim] / local.shape[dim] : 0;
  for (int64_t i = 0; i < outer && inner; ++i)
    visit((i * parts + block) * inner, i * inner, inner);
}

llvm::Expected<Array> run::takeBlock(const Array &global, SplitAttr split,
                                     AxisAttr axis, int64_t block) {
  if (!split)
    return global;
  SmallVector<int64_t, 4> shape = global.shape;
  shape[split.getDim()] /= axis.getSize();
  llvm::Expected<Array> local =
      allocateArray(global.element, shape, "a rank's block");
  if (local)
    forEachRun(*local, global, split.getDim(), block,
               [&](int64_t from, int64_t to, int64_t bytes) {
                 std::memcpy(local->data.get() + to, global.data.get() + from,
                             bytes);
               });
  return local;
}

void run::putBlock(const Array &local, SplitAttr split, int64_t block,
                   const Array &global) {
  forEachRun(local, global, split.getDim(), block,
             [&](int64_t to, int64_t from, int64_t bytes) {
               std::memcpy(global.data.get() + to, local.data.get() + from,
                           bytes);
             });
}
