//===- KvShards.cpp - Each rank's part of a sharded KV cache --------------===//

#include "KvShards.h"
#include "Pages.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

/// Blocks of each rank's cache that belong to no request.
static constexpr int64_t kSpareBlocks = 3;

const Array *KvShards::find(const Signature &signature, unsigned argument,
                            int64_t rank) const {
  auto found = arrays.find(argument);
  if (found == arrays.end())
    return nullptr;
  const Argument &known = signature.arguments[argument];
  AxisAttr axis = known.kvAxis ? known.kvAxis : known.viewAxis;
  return &found->second[signature.getBlock(axis, rank)];
}

namespace {

/// One sharded table and the caches that it addresses.
class TableSharder {
public:
  TableSharder(const Signature &signature, const Inputs &inputs, unsigned table,
               uint64_t seed, Tables tables)
      : signature(signature), inputs(inputs), number(table),
        table(signature.arguments[table]), ranks(this->table.kvAxis.getSize()),
        seed(seed), tables(tables) {}

  llvm::Error shard(KvShards &shards);

private:
  /// The row of a rank's cache where a request's token stands; -1 for none.
  using PlaceOf = llvm::function_ref<int64_t(int64_t request, int64_t token)>;

  llvm::Error dealPages();
  llvm::Expected<Array> makeTable(int64_t rank);
  llvm::Expected<Array> makeCache(unsigned cache, int64_t rank);
  llvm::Expected<Array> makeView(unsigned cache, int64_t rank);
  llvm::Expected<Array> makeRows(unsigned cache, int64_t rows, PlaceOf placeOf);
  using Places = std::vector<KvShards::Place>;
  llvm::Expected<Array> makeSlotMap(unsigned map, int64_t rank);
  bool isView(const Argument &cache) const {
    return cache.role == Role::Cache && cache.viewAxis &&
           cache.table == int(number);
  }

  const Signature &signature;
  const Inputs &inputs;
  unsigned number;
  const Argument &table;
  int64_t ranks;
  uint64_t seed;
  Tables tables;
  std::vector<Pages> pages; // by coordinate
  /// By cache, of the coordinates that have been cut so far.
  std::map<unsigned, std::vector<Places>> places;
};

} // namespace

/// Counts tokens one by one, unlike the lowerings, which compute.
static std::vector<int64_t> countOwned(const Step &step, int64_t ranks,
                                       int64_t interleave, int64_t rank) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < step.getNumRequests(); ++r) {
    counts.push_back(0);
    for (int64_t token = 0, end = step.getKvLen(r); token < end; ++token)
      counts.back() += token / interleave % ranks == rank;
  }
  return counts;
}

llvm::Error TableSharder::dealPages() {
  // All ranks have caches of one size; rank 0 owns the most.
  Step most;
  most.contextLens = countOwned(inputs.step, ranks, table.interleave, 0);
  most.queryLens.assign(most.contextLens.size(), 0);
  // Whoever gives out several blocks at once gives out all of them, and those
  // that a view names are there on every rank.
  int64_t atOnce = 0;
  for (const Argument &cache : signature.arguments)
    if (isView(cache))
      atOnce = std::max(atOnce, cache.blocksPerBlock * table.blockSize);
  if (atOnce)
    for (int64_t &length : most.contextLens)
      length = int64_t(llvm::alignTo(length, atOnce));
  int64_t blocks = Pages::countBlocks(most, table.blockSize) + kSpareBlocks;
  int64_t width = Pages::countWidth(most, table.blockSize);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (tables == Tables::Alike && rank != 0) {
      pages.push_back(pages.front());
      continue;
    }
    Step own;
    own.contextLens = countOwned(inputs.step, ranks, table.interleave, rank);
    own.queryLens.assign(own.contextLens.size(), 0);
    if (atOnce)
      own = most;
    Random random(seed + (number * ranks + rank) * 0xd1b54a32d192ed03);
    random.next();
    pages.push_back(Pages::shuffled(own, table.blockSize, blocks, width,
                                    inputs.nullBlock, random));
  }
  return llvm::Error::success();
}

llvm::Expected<Array> TableSharder::makeTable(int64_t rank) {
  const Pages &own = pages[rank];
  llvm::Expected<Array> array =
      allocateArray(table.element, {inputs.step.getNumRequests(), own.width},
                    "a rank's block table");
  if (array)
    for (int64_t i = 0, e = own.table.size(); i < e; ++i)
      array->setInt(i, own.table[i]);
  return array;
}

/// A rank's cache of `rows` rows, with those of the global one in their places.
llvm::Expected<Array> TableSharder::makeRows(unsigned cacheNumber, int64_t rows,
                                             PlaceOf placeOf) {
  const Argument &cache = signature.arguments[cacheNumber];
  const Array &global = inputs.arrays[cacheNumber];
  const Array &globalTable = inputs.arrays[number];
  int64_t stride = cache.blockStride, blockSize = table.blockSize;
  llvm::Expected<Array> array =
      allocateArray(cache.element, {rows, global.shape[1]}, "a rank's cache");
  if (!array)
    return array;
  // NaN in every format of floats, packed ones too.
  std::memset(array->data.get(), 0xff, array->getNumBytes());
  int64_t rowBytes = global.getRowElements() * getElementBytes(cache.element);
  int64_t requests =
      std::min(inputs.step.getNumRequests(), globalTable.shape[0]);
  Places &tokens = places[cacheNumber].emplace_back();
  for (int64_t r = 0; r < requests; ++r)
    for (int64_t token = 0, end = inputs.step.getKvLen(r); token < end;
         ++token) {
      int64_t to = placeOf(r, token);
      if (to < 0)
        continue;
      int64_t block = token / blockSize;
      if (block >= globalTable.shape[1])
        return makeError("argument %" + table.name + " has " +
                         llvm::Twine(globalTable.shape[1]) +
                         " columns, and request " + llvm::Twine(r) +
                         " has tokens in block " + llvm::Twine(block));
      int64_t entry = globalTable.getInt(r * globalTable.shape[1] + block);
      int64_t from = entry * stride + token % blockSize;
      if (entry < 0 || from >= global.getNumRows())
        return makeError("argument %" + table.name + " has block " +
                         llvm::Twine(entry) + " for request " + llvm::Twine(r) +
                         ", column " + llvm::Twine(block) + ", and argument %" +
                         cache.name + " has " +
                         llvm::Twine(global.getNumRows()) + " rows");
      std::memcpy(array->data.get() + to * rowBytes,
                  global.data.get() + from * rowBytes, rowBytes);
      tokens.push_back({from, to});
    }
  return array;
}

llvm::Expected<Array> TableSharder::makeCache(unsigned cacheNumber,
                                              int64_t rank) {
  const Pages &own = pages[rank];
  int64_t stride = signature.arguments[cacheNumber].blockStride;
  // Tokens of a request come in their order.
  int64_t request = -1, local = 0;
  return makeRows(cacheNumber, own.numBlocks * stride,
                  [&](int64_t r, int64_t token) -> int64_t {
                    if (r != request)
                      local = 0;
                    request = r;
                    if (token / table.interleave % ranks != rank)
                      return -1;
                    return own.getRow(r, local++, stride);
                  });
}

/// A cache with the tokens of all ranks, in the blocks that the view of this
/// rank's table names: those of the ranks in turn, several at once.
llvm::Expected<Array> TableSharder::makeView(unsigned cacheNumber,
                                             int64_t rank) {
  const Argument &cache = signature.arguments[cacheNumber];
  const Pages &own = pages[rank];
  int64_t atOnce = cache.blocksPerBlock, stride = cache.blockStride;
  int64_t members = cache.viewAxis.getSize();
  int64_t blocks = int64_t(llvm::alignTo(own.numBlocks, atOnce)) * members;
  return makeRows(
      cacheNumber, blocks * stride, [&](int64_t r, int64_t token) -> int64_t {
        int64_t column = token / table.blockSize, unit = column / atOnce;
        column = unit / members * atOnce + column % atOnce;
        if (column >= own.width || own.table[r * own.width + column] < 0)
          return -1;
        int64_t block = own.table[r * own.width + column];
        block = (block / atOnce * members + unit % members) * atOnce +
                block % atOnce;
        return block * stride + token % table.blockSize;
      });
}

/// Slots of the step's tokens that the rank owns; -1 for others and padding.
llvm::Expected<Array> TableSharder::makeSlotMap(unsigned map, int64_t rank) {
  const Argument &argument = signature.arguments[map];
  int64_t stride = signature.arguments[argument.cache].blockStride;
  const Step &step = inputs.step;
  std::vector<int32_t> requests = step.getRowRequests();
  std::vector<int32_t> visible = step.getRowVisible();
  llvm::Expected<Array> array =
      allocateArray(argument.element, {step.getNumRows()}, "a rank's slot map");
  if (!array)
    return array;
  for (int64_t row = 0; row < step.getNumRows(); ++row) {
    int64_t slot = -1, token = visible[row] - 1;
    if (requests[row] >= 0 && token / table.interleave % ranks == rank) {
      int64_t local = 0;
      for (int64_t before = 0; before < token; ++before)
        local += before / table.interleave % ranks == rank;
      slot = pages[rank].getRow(requests[row], local, stride);
    }
    array->setInt(row, slot);
  }
  return array;
}

llvm::Error TableSharder::shard(KvShards &shards) {
  if (llvm::Error error = dealPages())
    return error;
  auto add = [&](unsigned argument, auto make) -> llvm::Error {
    auto type = cast<RankedTensorType>(signature.arguments[argument].type);
    unsigned open = argument == number ? 1 : 0;
    bool isMap = signature.arguments[argument].role == Role::SlotMap;
    if (!isMap && !type.isDynamicDim(open))
      return makeError("argument %" + signature.arguments[argument].name +
                       " holds a rank's own tokens: expected a dynamic size " +
                       llvm::Twine(open));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      llvm::Expected<Array> array = make(rank);
      if (!array)
        return array.takeError();
      shards.arrays[argument].push_back(std::move(*array));
    }
    return llvm::Error::success();
  };
  if (llvm::Error error =
          add(number, [&](int64_t rank) { return makeTable(rank); }))
    return error;
  for (auto [i, cache] : llvm::enumerate(signature.arguments))
    if (cache.role == Role::Cache && cache.kvAxis && cache.table == int(number))
      if (llvm::Error error =
              add(i, [&](int64_t rank) { return makeCache(i, rank); }))
        return error;
  for (auto [i, cache] : llvm::enumerate(signature.arguments))
    if (isView(cache))
      if (llvm::Error error =
              add(i, [&](int64_t rank) { return makeView(i, rank); }))
        return error;
  for (auto [i, map] : llvm::enumerate(signature.arguments))
    if (map.role == Role::SlotMap && map.kvAxis && map.table == int(number))
      if (llvm::Error error =
              add(i, [&](int64_t rank) { return makeSlotMap(i, rank); }))
        return error;
  shards.places.merge(places);
  return llvm::Error::success();
}

namespace {

/// Puts the caches of ranks together.
class CacheJoiner {
public:
  CacheJoiner(const Argument &cache, Array &whole)
      : cache(cache), whole(whole),
        rowBytes(whole.getRowElements() * getElementBytes(whole.element)),
        placed(whole.getNumRows()) {}

  /// Adds what a rank returned, whose cache was `before`.
  llvm::Error add(int64_t rank, const Array &part, const Array &before,
                  ArrayRef<KvShards::Place> places);

private:
  const char *getRow(const Array &array, int64_t row) const {
    return array.data.get() + row * rowBytes;
  }
  bool isSame(const char *row, const char *other) const {
    return std::memcmp(row, other, rowBytes) == 0;
  }

  const Argument &cache;
  Array &whole;
  int64_t rowBytes;
  std::vector<bool> placed; // rows that a rank has had
};

} // namespace

llvm::Error CacheJoiner::add(int64_t rank, const Array &part,
                             const Array &before,
                             ArrayRef<KvShards::Place> places) {
  if (part.shape != before.shape || part.element != before.element)
    return makeError("rank " + llvm::Twine(rank) + " returned " +
                     describe(part) + " for its part of argument %" +
                     cache.name + ", " + describe(before));
  std::vector<bool> isToken(part.getNumRows());
  for (auto [to, from] : places) {
    isToken[from] = true;
    const char *row = getRow(part, from);
    char *target = whole.data.get() + to * rowBytes;
    // Of a view all ranks have all tokens, and requests may share blocks of the
    // given table, of which each has its own here.
    if (placed[to] && !isSame(row, target))
      return makeError(
          "rank " + llvm::Twine(rank) +
          " differs from another place of the same token, in row " +
          llvm::Twine(to) + " of argument %" + cache.name);
    placed[to] = true;
    std::memcpy(target, row, rowBytes);
  }
  for (int64_t row = 0, e = part.getNumRows(); row < e; ++row)
    if (!isToken[row] && !isSame(getRow(part, row), getRow(before, row)))
      return makeError("rank " + llvm::Twine(rank) + " wrote row " +
                       llvm::Twine(row) + " of its part of argument %" +
                       cache.name + ", which has no token of the step");
  return llvm::Error::success();
}

llvm::Expected<Array> run::joinCaches(const Signature &signature,
                                      unsigned argument, const KvShards &shards,
                                      const Array &given,
                                      ArrayRef<const Array *> parts) {
  const Argument &cache = signature.arguments[argument];
  AxisAttr axis = cache.kvAxis ? cache.kvAxis : cache.viewAxis;
  llvm::Expected<Array> whole = allocateArray(
      given.element, given.shape, "the cache of argument %" + cache.name);
  if (!whole)
    return whole;
  std::memcpy(whole->data.get(), given.data.get(), given.getNumBytes());
  const auto &places = shards.places.at(argument);
  CacheJoiner joiner(cache, *whole);
  std::vector<const Array *> first(places.size());
  for (auto [rank, part] : llvm::enumerate(parts)) {
    int64_t block = signature.getBlock(axis, rank);
    // Ranks off the axis repeat the parts of others, bit by bit.
    if (const Array *other = first[block]) {
      if (part->shape == other->shape &&
          std::memcmp(part->data.get(), other->data.get(),
                      part->getNumBytes()) == 0)
        continue;
      return makeError("rank " + llvm::Twine(rank) +
                       " returned another part of argument %" + cache.name +
                       " than a rank with the same tokens");
    }
    first[block] = part;
    if (llvm::Error error =
            joiner.add(rank, *part, *shards.find(signature, argument, rank),
                       places[block]))
      return std::move(error);
  }
  return whole;
}

/// Whether lengths that were given are the step's.
static bool agreesWithStep(const Argument &argument, const Array &array,
                           const Step &step) {
  std::vector<int32_t> expected;
  if (argument.role == Role::SeqLens)
    expected = step.getSeqLens();
  else if (argument.role == Role::QueryStart)
    expected = step.getQueryStart();
  else
    return true;
  return array.getNumElements() == int64_t(expected.size()) &&
         llvm::all_of(llvm::enumerate(expected), [&](auto entry) {
           return array.getInt(entry.index()) == entry.value();
         });
}

bool run::needsTablesAlike(ModuleOp module) {
  return module.walk([](GatherBlocksOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

llvm::Expected<KvShards> run::shardCaches(const Signature &signature,
                                          const Inputs &inputs, uint64_t seed,
                                          Tables tables) {
  KvShards shards;
  bool isSharded = llvm::any_of(
      signature.arguments, [](const Argument &a) { return bool(a.kvAxis); });
  for (auto [i, argument] : llvm::enumerate(signature.arguments)) {
    // Ranks are dealt the tokens of the step.
    if (isSharded && !agreesWithStep(argument, inputs.arrays[i], inputs.step))
      return makeError("argument %" + argument.name + " (" +
                       getRoleName(argument.role) +
                       ") is not what the step says, by which the KV cache is "
                       "sharded");
    if (argument.viewAxis) {
      const Argument *table =
          argument.table < 0 ? nullptr : &signature.arguments[argument.table];
      if (!table || table->kvAxis != argument.viewAxis)
        return makeError("argument %" + argument.name +
                         " is read through a view of a block table that is not "
                         "the argument of a KV cache sharded over the view's "
                         "axis");
      if (argument.hasOtherTable || argument.isWhole)
        return makeError("argument %" + argument.name +
                         " is read through a view and otherwise, or in blocks "
                         "that differ");
    }
    if (!argument.kvAxis)
      continue;
    if (argument.isWhole)
      return makeError("argument %" + argument.name + " (" +
                       getRoleName(argument.role) +
                       ") serves KV caches of more than one sharding");
    if (argument.hasOtherTable)
      return makeError("argument %" + argument.name +
                       " is a sharded cache with more than one block table, "
                       "or more than one block size");
    if (argument.role == Role::Cache && argument.table < 0)
      return makeError("argument %" + argument.name +
                       " is a sharded cache whose block table is no argument");
    if (argument.role == Role::Table)
      if (llvm::Error error =
              TableSharder(signature, inputs, i, seed, tables).shard(shards))
        return error;
  }
  return shards;
}
