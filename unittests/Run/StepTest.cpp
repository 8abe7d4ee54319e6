//===- StepTest.cpp - Step files ------------------------------------------===//

#include "Step.h"
#include "Helpers.h"

using namespace mlir::shardq::run;

static Step parse(llvm::StringRef text) {
  auto step = parseStep(text);
  EXPECT_TRUE(bool(step)) << llvm::toString(step.takeError());
  return *step;
}

TEST(Step, DescribesRows) {
  Step step =
      parse(R"({"query_lens": [1, 2, 3, 1], "context_lens": [5, 0, 7, 2],
                        "speculative_tokens": 1, "padding_rows": 2,
                        "decodes": 2, "block_size": 16, "comment": "x"})");
  EXPECT_EQ(step.getNumRows(), 9);
  EXPECT_EQ(step.getNumDecodes(), 2);
  EXPECT_EQ(step.getDecodeRows(), 3);
  EXPECT_EQ(step.getMaxKvLen(), 10);
  EXPECT_EQ(*step.blockSize, 16);
  EXPECT_EQ(step.getQueryStart(), (std::vector<int32_t>{0, 1, 3, 6, 7}));
  EXPECT_EQ(step.getSeqLens(), (std::vector<int32_t>{6, 2, 10, 3}));
  EXPECT_EQ(step.getRowRequests(),
            (std::vector<int32_t>{0, 1, 1, 2, 2, 2, 3, -1, -1}));
  EXPECT_EQ(step.getRowVisible(),
            (std::vector<int32_t>{6, 1, 2, 8, 9, 10, 3, 0, 0}));
}

TEST(Step, AShortRequestBehindALongOneIsPrefill) {
  Step step = parse(R"({"query_lens": [1, 9, 1], "context_lens": [0, 0, 0]})");
  EXPECT_EQ(step.getNumDecodes(), 1);
  Step empty = parse(R"({"query_lens": [], "context_lens": []})");
  EXPECT_EQ(empty.getNumRows(), 0);
  EXPECT_EQ(empty.getNumDecodes(), 0);
}

TEST(Step, NamesPathAndValueOfErrors) {
  auto expectError = [](llvm::StringRef text, llvm::StringRef part) {
    std::string error = getError(parseStep(text));
    EXPECT_NE(error.find(part.str()), std::string::npos)
        << text.str() << ": " << error;
  };
  expectError("{", "not JSON");
  expectError(std::string(200000, '['), "nested too deeply");
  expectError("[]", "expected a JSON object");
  expectError("{}", "'query_lens' is missing");
  expectError(R"({"query_lens": 3, "context_lens": []})",
              "'query_lens' is not an array");
  expectError(R"({"query_lens": [1], "context_lens": [-4]})",
              "context_lens[0] is -4");
  expectError(R"({"query_lens": [1, 1.5], "context_lens": [0, 0]})",
              "query_lens[1] is 1.5, expected an integer");
  expectError(R"({"query_lens": [1e30], "context_lens": [0]})",
              "query_lens[0] is");
  expectError(R"({"query_lens": [1], "context_lens": []})",
              "query_lens has 1 entries, context_lens 0");
  expectError(R"({"query_lens": [], "context_lens": [], "blocksize": 64})",
              "unknown key 'blocksize'");
  expectError(R"({"query_lens": [], "context_lens": [], "block_size": 0})",
              "block_size is 0, expected 1 to");
  expectError(R"({"query_lens": [], "context_lens": [], "decodes": "1"})",
              "decodes is \"1\", expected an integer");
  expectError(R"({"query_lens": [2147483647, 1], "context_lens": [0, 0]})",
              "2147483648 rows");
  expectError(R"({"query_lens": [1], "context_lens": [2147483647]})",
              "request 0 has 2147483648 tokens");
}
