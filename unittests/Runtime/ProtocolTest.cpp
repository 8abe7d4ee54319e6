//===- ProtocolTest.cpp - Words of the exchange protocol ------------------===//

#include "protocol/Protocol.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

using namespace shardq::protocol;

TEST(Protocol, NewsKeepRowsAndOperation) {
  for (int64_t rows :
       {int64_t(0), int64_t(1), int64_t(8192), News::kNoRows - 1})
    for (int64_t operation : {0, 1, (1 << 20) - 1}) {
      News news(rows, operation);
      EXPECT_EQ(news.rows(), rows);
      EXPECT_EQ(news.operation(), operation);
    }
}

// A wrong count is never taken for a right one, nor for another operation.
TEST(Protocol, NewsOfCountsThatCannotBe) {
  for (int64_t rows : {int64_t(-1), News::kNoRows, News::kNoRows + 1,
                       std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(News(rows, 5).rows(), News::kNoRows);
    EXPECT_EQ(News(rows, 5).operation(), 5);
  }
}

TEST(Protocol, LinesAreCacheLines) {
  EXPECT_EQ(sizeof(Flag), 16u);
  EXPECT_EQ(sizeof(FlagLine), 64u);
}
