//===- Step.cpp - The requests of one step --------------------------------===//

#include "Step.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <algorithm>
#include <limits>
#include <numeric>

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

static constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

int64_t Step::getNumTokens() const {
  return std::accumulate(queryLens.begin(), queryLens.end(), int64_t(0));
}

int64_t Step::getMaxKvLen() const {
  int64_t longest = 0;
  for (int64_t r = 0; r < getNumRequests(); ++r)
    longest = std::max(longest, getKvLen(r));
  return longest;
}

int64_t Step::getNumKvTokens() const {
  int64_t tokens = 0;
  for (int64_t r = 0; r < getNumRequests(); ++r)
    tokens += getKvLen(r);
  return tokens;
}

int64_t Step::getNumDecodes() const {
  int64_t limit = 1 + speculativeTokens.value_or(0);
  return std::find_if(queryLens.begin(), queryLens.end(),
                      [&](int64_t len) { return len > limit; }) -
         queryLens.begin();
}

int64_t Step::getDecodeRows() const {
  return std::accumulate(queryLens.begin(), queryLens.begin() + getNumDecodes(),
                         int64_t(0));
}

std::vector<int32_t> Step::getQueryStart() const {
  std::vector<int32_t> start(1, 0);
  for (int64_t len : queryLens)
    start.push_back(int32_t(start.back() + len));
  return start;
}

std::vector<int32_t> Step::getSeqLens() const {
  std::vector<int32_t> lens;
  for (int64_t r = 0; r < getNumRequests(); ++r)
    lens.push_back(int32_t(getSeqLen(r)));
  return lens;
}

std::vector<int32_t> Step::getRowRequests() const {
  std::vector<int32_t> requests;
  for (int64_t r = 0; r < getNumRequests(); ++r)
    requests.insert(requests.end(), queryLens[r], int32_t(r));
  requests.resize(getNumRows(), -1);
  return requests;
}

std::vector<int32_t> Step::getRowVisible() const {
  std::vector<int32_t> visible;
  for (int64_t r = 0; r < getNumRequests(); ++r)
    for (int64_t i = 0; i < queryLens[r]; ++i)
      visible.push_back(int32_t(contextLens[r] + i + 1));
  visible.resize(getNumRows(), 0);
  return visible;
}

/// One integer of the file. llvm::json keeps a number that is not an int64 as
/// a double, so that 1.5 and 1e30 come here as well.
static llvm::Expected<int64_t> takeInt(const llvm::json::Value &value,
                                       const std::string &path, int64_t least,
                                       int64_t most) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  if (text.size() > 40)
    text = text.substr(0, 40) + "...";
  std::optional<int64_t> number = value.getAsInteger();
  if (!number)
    return makeError(llvm::Twine(path) + " is " + text +
                     ", expected an integer");
  if (*number < least || *number > most)
    return makeError(llvm::Twine(path) + " is " + text + ", expected " +
                     llvm::Twine(least) + " to " + llvm::Twine(most));
  return *number;
}

static llvm::Expected<std::vector<int64_t>>
takeLens(const llvm::json::Object &object, StringRef key) {
  const llvm::json::Value *value = object.get(key);
  if (!value)
    return makeError("'" + key + "' is missing");
  const llvm::json::Array *array = value->getAsArray();
  if (!array)
    return makeError("'" + key + "' is not an array");
  std::vector<int64_t> lens;
  for (auto [i, item] : llvm::enumerate(*array)) {
    llvm::Expected<int64_t> len =
        takeInt(item, (key + "[" + llvm::Twine(i) + "]").str(), 0, kMaxInt32);
    if (!len)
      return len.takeError();
    lens.push_back(*len);
  }
  return lens;
}

llvm::Error Step::check() const {
  if (queryLens.size() != contextLens.size())
    return makeError("query_lens has %zu entries, context_lens %zu",
                     queryLens.size(), contextLens.size());
  for (int64_t r = 0; r < getNumRequests(); ++r)
    if (getSeqLen(r) > kMaxInt32)
      return makeError("request %ld has %ld tokens with its context, more "
                       "than 2^31 - 1",
                       long(r), long(getSeqLen(r)));
  if (getNumRows() > kMaxInt32)
    return makeError("the step has %ld rows, more than 2^31 - 1",
                     long(getNumRows()));
  return llvm::Error::success();
}

/// Deeper text than any step's would overflow the parser's stack.
static bool isNestedDeeply(StringRef text) {
  constexpr int kMaxDepth = 16;
  int depth = 0;
  bool inString = false, escaped = false;
  for (char character : text) {
    // Brackets of a comment nest nothing.
    if (character == '"' && !escaped)
      inString = !inString;
    escaped = inString && character == '\\' && !escaped;
    if (inString)
      continue;
    depth += character == '[' || character == '{';
    depth -= character == ']' || character == '}';
    if (depth > kMaxDepth)
      return true;
  }
  return false;
}

llvm::Expected<Step> run::parseStep(StringRef text) {
  if (isNestedDeeply(text))
    return makeError("not a step: nested too deeply");
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value)
    return makeError("not JSON: " + llvm::toString(value.takeError()));
  const llvm::json::Object *object = value->getAsObject();
  if (!object)
    return makeError("expected a JSON object");

  Step step;
  auto lens = takeLens(*object, "query_lens");
  if (!lens)
    return lens.takeError();
  step.queryLens = std::move(*lens);
  lens = takeLens(*object, "context_lens");
  if (!lens)
    return lens.takeError();
  step.contextLens = std::move(*lens);

  for (auto &[key, item] : *object) {
    StringRef name = key;
    std::optional<int64_t> padding;
    std::optional<int64_t> *field = nullptr;
    if (name == "block_size")
      field = &step.blockSize;
    else if (name == "speculative_tokens")
      field = &step.speculativeTokens;
    else if (name == "decodes")
      field = &step.decodes;
    else if (name == "padding_rows")
      field = &padding;
    else if (name == "query_lens" || name == "context_lens" ||
             name == "comment")
      continue;
    else
      return makeError("unknown key '" + name + "'");
    llvm::Expected<int64_t> number =
        takeInt(item, name.str(), name == "block_size" ? 1 : 0, kMaxInt32);
    if (!number)
      return number.takeError();
    *field = *number;
    step.paddingRows = padding.value_or(step.paddingRows);
  }
  if (llvm::Error error = step.check())
    return error;
  return step;
}

llvm::Expected<Step> run::readStep(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return makeError(path + ": " + buffer.getError().message());
  llvm::Expected<Step> step = parseStep((*buffer)->getBuffer());
  if (!step)
    return makeError(path + ": " + llvm::toString(step.takeError()));
  return step;
}
