#include "files/schedule_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "files/text_file.h"
#include "support/text.h"

namespace graphpipe::files {
namespace {

constexpr int64_t kMaxCsvBytes = int64_t{256} << 20;
/// Numbers of stages, replicas and micro-batches.
constexpr int32_t kLargest = 1 << 30;
constexpr std::string_view kOverlap = ")OVERLAP_F_B";

/// By CsvOp: PyTorch's names of actions are ours, and three more.
constexpr auto kNames = [] {
  std::array<std::string_view, kActionsOfCsv.size() + 3> names{};
  for (size_t op = 0; op < kActionsOfCsv.size(); ++op) names[op] = ir::action_name(kActionsOfCsv[op]);
  names[8] = "UNSHARD";
  names[9] = "RESHARD";
  names[10] = "REDUCE_GRAD";
  return names;
}();

std::optional<CsvOp> take_op(std::string_view& rest) {
  size_t best = kNames.size();
  for (size_t op = 0; op < kNames.size(); ++op)
    if (rest.starts_with(kNames[op]) && (best == kNames.size() || kNames[op].size() > kNames[best].size())) best = op;
  if (best == kNames.size()) return std::nullopt;
  rest.remove_prefix(kNames[best].size());
  return static_cast<CsvOp>(best);
}

bool take_number(std::string_view& rest, int32_t& number) {
  if (rest.empty() || rest.front() < '0' || rest.front() > '9') return false;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || number > kLargest) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return true;
}

bool needs_micro_batch(CsvOp op) { return op < CsvOp::kUnshard; }

std::optional<CsvAction> parse_token(std::string_view token) {
  CsvAction action;
  if (token.starts_with('r')) {
    token.remove_prefix(1);
    if (!take_number(token, action.replica) || !token.starts_with(':')) return std::nullopt;
    token.remove_prefix(1);
  }
  if (!take_number(token, action.stage)) return std::nullopt;
  const std::optional<CsvOp> op = take_op(token);
  if (!op) return std::nullopt;
  action.op = *op;
  const bool numbered = take_number(token, action.micro_batch);
  if (!token.empty() || (!numbered && needs_micro_batch(*op))) return std::nullopt;
  return action;
}

/// Empty where the text is no cell.
std::vector<CsvAction> parse_cell(std::string_view cell) {
  std::vector<CsvAction> actions;
  if (!cell.starts_with('(')) {
    if (const std::optional<CsvAction> action = parse_token(cell)) actions.push_back(*action);
    return actions;
  }
  if (!cell.ends_with(kOverlap)) return {};
  const std::string_view inside = cell.substr(1, cell.size() - 1 - kOverlap.size());
  const size_t middle = inside.find(';');
  if (middle == std::string_view::npos) return {};
  const std::optional<CsvAction> first = parse_token(inside.substr(0, middle));
  const std::optional<CsvAction> second = parse_token(inside.substr(middle + 1));
  if (!first || !second || first->op != CsvOp::kForward) return {};
  if (second->op != CsvOp::kBackward && second->op != CsvOp::kInputGradient) return {};
  return {*first, *second};
}

std::string_view take_until(std::string_view& rest, char mark) {
  const size_t length = std::min(rest.find(mark), rest.size());
  const std::string_view taken = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return taken;
}

Diagnostic no_token(size_t rank, int32_t column, std::string_view found) {
  const bool instructions = found.find_first_of("|@") != std::string_view::npos;
  return Diagnostic{.code = Code::kMalformedFile,
                    .message = text("rank ", rank, ", cell ", column,
                                    ": not an action: ", quoted(ModelText(std::string(found.substr(0, 80))))),
                    .hint = instructions ? "instruction lists of steps and buffers are another format: write one token "
                                           "per action, such as 2F0"
                                         : "write <stage><op><micro-batch> with F, B, I, W, SEND_F, RECV_F, SEND_B or "
                                           "RECV_B, or (aFm;bBn)OVERLAP_F_B"};
}

std::string print_token(const CsvAction& action) {
  std::string out;
  if (action.replica >= 0) out.append("r").append(std::to_string(action.replica)).append(":");
  out.append(std::to_string(action.stage)).append(kNames[static_cast<size_t>(action.op)]);
  if (action.micro_batch >= 0) out.append(std::to_string(action.micro_batch));
  return out;
}

}  // namespace

Result<CsvSchedule> parse_schedule_csv(std::string_view source) {
  if (static_cast<int64_t>(source.size()) > kMaxCsvBytes)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .message = text("the schedule has ", source.size(), " bytes"),
                      .hint = text("give at most ", kMaxCsvBytes, " bytes")};
  CsvSchedule csv;
  Diagnostics problems;
  // Empty lines at the end are no ranks: a rank without work there is written as idle cells.
  source = source.substr(0, source.find_last_not_of(" \t\r\n") + 1);
  while (!source.empty()) {
    std::string_view line = take_until(source, '\n');
    std::vector<CsvCell>& cells = csv.ranks.emplace_back();
    for (int32_t column = 0; !line.empty(); ++column) {
      const std::string_view cell = trimmed(take_until(line, ','));
      if (cell.empty()) continue;
      cells.push_back({parse_cell(cell), column});
      if (cells.back().actions.empty() && problems.size() < kMaxProblems)
        problems.push_back(no_token(csv.ranks.size() - 1, column, cell));
    }
  }
  const auto is_idle = [](const std::vector<CsvCell>& cells) { return cells.empty(); };
  if (std::all_of(csv.ranks.begin(), csv.ranks.end(), is_idle))
    problems.push_back(
        {.code = Code::kMalformedFile, .message = "the schedule is empty", .hint = "write one line per rank"});
  if (!problems.empty()) return problems;
  return csv;
}

std::string print_cell(const CsvCell& cell) {
  if (cell.actions.size() == 1) return print_token(cell.actions.front());
  std::string out = "(";
  for (const CsvAction& action : cell.actions) out.append(out.size() > 1 ? ";" : "").append(print_token(action));
  return out.append(kOverlap);
}

std::string print_schedule_csv(const CsvSchedule& csv) {
  std::string out;
  size_t working = csv.ranks.size();
  while (working > 0 && csv.ranks[working - 1].empty()) --working;
  for (size_t rank = 0; rank < csv.ranks.size(); ++rank) {
    const std::vector<CsvCell>& cells = csv.ranks[rank];
    if (rank >= working) out.append(",");
    bool first = true;
    for (const CsvCell& cell : cells) {
      if (!first) out.append(",");
      first = false;
      out.append(print_cell(cell));
    }
    out.append("\n");
  }
  return out;
}

}  // namespace graphpipe::files
