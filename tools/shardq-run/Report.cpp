//===- Report.cpp - What --verify tells -----------------------------------===//

#include "Report.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::shardq;
using namespace mlir::shardq::run;

namespace {

/// How evenly work is spread: the slowest rank over the average.
struct Balance {
  double most = 0, sum = 0;
  int64_t count = 0;
  void add(double work) {
    most = std::max(most, work);
    sum += work;
    ++count;
  }
  double getRatio() const { return sum > 0 ? most * count / sum : 1; }
};

} // namespace

static StringRef getUnit(ReferenceValue::Kind kind, bool isRounded) {
  switch (kind) {
  case ReferenceValue::Plain:
    return "exact";
  case ReferenceValue::Attention:
    return isRounded ? "relative" : "ulp";
  case ReferenceValue::Lse:
    return "lse";
  }
  return "";
}

static void printProgram(const char *name, const ProgramReport &program,
                         const VerifyReport &report, llvm::raw_ostream &out) {
  ArrayRef<ReferenceValue::Kind> kinds = report.resultKinds;
  out << llvm::format("  %-20s %8.2f s  ", name, program.seconds);
  for (auto [i, error] : llvm::enumerate(program.errors)) {
    ReferenceValue::Kind kind =
        i < kinds.size() ? kinds[i] : ReferenceValue::Plain;
    if (i)
      out << ", ";
    if (kind == ReferenceValue::Plain)
      out << (error == 0 ? "equal" : "differs");
    else if (kind == ReferenceValue::Lse)
      out << llvm::format("%.1e", error) << " (lse)";
    else if (report.isRounded)
      out << llvm::format("%.1e", error) << " of a row";
    else
      out << llvm::format("%.2f", error) << " ulp";
  }
  out << '\n';
}

void run::printReport(const VerifyReport &report, llvm::raw_ostream &out) {
  const Step &step = report.step;
  int64_t decodes = step.getDecodeRows();
  out << "rows " << step.getNumRows() << " (" << decodes << " decode, "
      << step.getNumTokens() - decodes << " prefill, " << step.paddingRows
      << " padding) of " << step.getNumRequests() << " requests on "
      << report.numRanks << " ranks\n"
      << "gate " << report.gate << '\n'
      << "                             time  largest error ("
      << (report.isRounded ? llvm::formatv("{0:f1}e-3 of a row",
                                           report.rewritten.allowed * 1e3)
                                 .str()
                           : "2 ulp")
      << " allowed)\n";
  printProgram("program as given", report.original, report, out);
  printProgram("rewritten program", report.rewritten, report, out);
  out << llvm::format("  %-20s %8.2f s\n", "float64 reference",
                      report.referenceSeconds);

  // Keys scored and keys attended by all heads, in sums over a rank's rows.
  out << "  rank          tokens  indexer work  attention work\n";
  auto printWork = [&](const std::string &name, const RankReport &work) {
    out << llvm::format("  %-9s %10lld  %12lld  %14.0f\n", name.c_str(),
                        (long long)work.tokens, (long long)work.indexerWork,
                        work.attentionWork);
  };
  printWork("as given", report.before);
  Balance tokens, indexer, attention;
  for (auto [rank, work] : llvm::enumerate(report.ranks)) {
    printWork(std::to_string(rank), work);
    tokens.add(double(work.tokens));
    indexer.add(double(work.indexerWork));
    attention.add(work.attentionWork);
  }
  out << llvm::format("  max/mean  %10.3f  %12.3f  %14.3f\n", tokens.getRatio(),
                      indexer.getRatio(), attention.getRatio());
  for (const std::string &problem : report.problems)
    out << "mismatch: " << problem << '\n';
  out << (report.problems.empty() ? "all agree\n" : "they do not agree\n");
}

static llvm::json::Object toJSON(const ProgramReport &program,
                                 const VerifyReport &report) {
  ArrayRef<ReferenceValue::Kind> kinds = report.resultKinds;
  llvm::json::Array errors;
  for (auto [i, error] : llvm::enumerate(program.errors))
    errors.push_back(llvm::json::Object{
        {"unit",
         i < kinds.size() ? getUnit(kinds[i], report.isRounded) : "exact"},
        // JSON has no infinity.
        {"largest", std::isfinite(error) ? llvm::json::Value(error)
                                         : llvm::json::Value(nullptr)}});
  return llvm::json::Object{{"seconds", program.seconds},
                            {"errors", std::move(errors)}};
}

llvm::Error run::writeReport(const VerifyReport &report, StringRef path) {
  const Step &step = report.step;
  llvm::json::Array ranks, problems;
  auto workToJSON = [](const RankReport &work) {
    return llvm::json::Object{{"tokens", work.tokens},
                              {"indexer_work", work.indexerWork},
                              {"attention_work", work.attentionWork}};
  };
  for (const RankReport &work : report.ranks)
    ranks.push_back(workToJSON(work));
  for (const std::string &problem : report.problems)
    problems.push_back(llvm::json::fixUTF8(problem));
  llvm::json::Value value = llvm::json::Object{
      {"agree", report.problems.empty()},
      {"rows", step.getNumRows()},
      {"decode_rows", step.getDecodeRows()},
      {"padding_rows", step.paddingRows},
      {"requests", step.getNumRequests()},
      {"gate_open", report.gateOpen},
      {"gate", report.gate},
      {"original", toJSON(report.original, report)},
      {"rewritten", toJSON(report.rewritten, report)},
      {"reference", llvm::json::Object{{"seconds", report.referenceSeconds}}},
      {"ranks", std::move(ranks)},
      {"as_given", workToJSON(report.before)},
      {"problems", std::move(problems)}};
  return writeText(path, llvm::formatv("{0:2}\n", value).str());
}
