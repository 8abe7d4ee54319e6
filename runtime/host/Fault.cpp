//===- Fault.cpp - Faults that tests inject -------------------------------===//

#include "Fault.h"

#include <charconv>

using namespace shardq;

static Outcome parseNumber(std::string_view key, std::string_view text,
                           int64_t &number) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    return failure(SHARDQ_INVALID, "fault: %.*s is '%.*s', expected a number",
                   static_cast<int>(key.size()), key.data(),
                   static_cast<int>(text.size()), text.data());
  return {};
}

static Outcome parseAction(std::string_view text, Fault::Action &action) {
  static constexpr std::pair<std::string_view, Fault::Action> kActions[] = {
      {"kill", Fault::Action::Kill},
      {"stall", Fault::Action::Stall},
      {"drop-flag", Fault::Action::DropFlag},
      {"wrong-rows", Fault::Action::WrongRows},
      {"wrong-operation", Fault::Action::WrongOperation}};
  for (auto [name, value] : kActions)
    if (text == name) {
      action = value;
      return {};
    }
  return failure(SHARDQ_INVALID,
                 "fault: action is '%.*s', expected kill, stall, drop-flag, "
                 "wrong-rows or wrong-operation",
                 static_cast<int>(text.size()), text.data());
}

Outcome Fault::parse(std::string_view text, Fault &fault) {
  if (text.empty())
    return {};
  Fault result;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(item.size() == text.size() ? text.size()
                                                  : item.size() + 1);
    size_t equals = item.find('=');
    std::string_view key = item.substr(0, equals);
    std::string_view value =
        equals == std::string_view::npos ? "" : item.substr(equals + 1);
    Outcome outcome;
    if (key == "rank")
      outcome = parseNumber(key, value, result.rank);
    else if (key == "slot")
      outcome = parseNumber(key, value, result.slot);
    else if (key == "operation")
      outcome = parseNumber(key, value, result.operation);
    else if (key == "epoch")
      outcome = parseNumber(key, value, result.epoch);
    else if (key == "action")
      outcome = parseAction(value, result.action);
    else
      outcome = failure(SHARDQ_INVALID,
                        "fault: unknown key '%.*s', expected rank, slot, "
                        "operation, epoch or action",
                        static_cast<int>(key.size()), key.data());
    if (outcome.failed())
      return outcome;
  }
  if (result.rank < 0 || result.action == Action::None)
    return failure(SHARDQ_INVALID, "fault: rank and action are needed");
  fault = result;
  return {};
}
