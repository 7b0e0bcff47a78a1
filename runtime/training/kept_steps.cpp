#include "runtime/training/kept_steps.h"

#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <utility>

namespace graphpipe::runtime {
namespace {

enum ColumnOfSteps : size_t {
  kStepCell,
  kSecondsCell,
  kSkippedCell,
  kLossCell,
  kNormCell,
  kScaleCell,
  kEvaluationCell,
  kCells
};

using Row = std::array<std::optional<double>, kCells>;

std::vector<std::string> columns() {
  return {"step", "seconds", "skipped", "loss", "gradient_norm", "loss_scale", "evaluation"};
}

// Absent where the line is none, such as the header and a row that was being written when the run was killed.
std::optional<Row> parse_row(std::string_view line) {
  Row row;
  for (size_t column = 0; column < kCells; ++column) {
    const size_t end = line.find(',');
    if ((end == std::string_view::npos) != (column + 1 == kCells)) return std::nullopt;
    const std::string_view cell = line.substr(0, end);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    if (cell.empty()) continue;
    double number = 0;
    if (std::from_chars(cell.data(), cell.data() + cell.size(), number).ptr != cell.data() + cell.size())
      return std::nullopt;
    row[column] = number;
  }
  return row[kStepCell] && row[kSecondsCell] && row[kSkippedCell] ? std::optional(row) : std::nullopt;
}

void add_row(const Row& row, wire::RunResult& result) {
  const auto step = static_cast<int64_t>(*row[kStepCell]);
  if (result.step_seconds.empty()) result.first_step = step;
  result.step_seconds.push_back(*row[kSecondsCell]);
  if (*row[kSkippedCell] != 0) result.skipped_steps.push_back(step);
  if (row[kLossCell]) result.losses.push_back(*row[kLossCell]);
  if (row[kNormCell]) result.gradient_norms.push_back(*row[kNormCell]);
  if (row[kScaleCell]) result.loss_scales.push_back(*row[kScaleCell]);
  if (!row[kEvaluationCell]) return;
  result.eval_steps.push_back(step);
  result.eval_losses.push_back(*row[kEvaluationCell]);
}

}  // namespace

void take_kept_steps(const std::string& path, int64_t done, wire::RunResult& result) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof();)
    if (const std::optional<Row> row = parse_row(line); row && *(*row)[kStepCell] <= static_cast<double>(done))
      add_row(*row, result);
}

KeptSteps::KeptSteps(std::string path, const wire::RunResult& result, bool is_rank_zero)
    : path_(std::move(path)), result_(result), is_rank_zero_(is_rank_zero) {}

void KeptSteps::before_step(int64_t step) {
  if (is_rank_zero_ && !file_) file_.emplace(path_, columns(), step);
}

Request KeptSteps::after_step(const StepFacts& facts) {
  if (!is_rank_zero_) return {};
  const bool was_evaluated = !result_.eval_steps.empty() && result_.eval_steps.back() == facts.step + 1;
  file_->append({facts.step + 1, facts.seconds, int64_t{facts.skipped.empty() ? 0 : 1},
                 facts.loss ? Cell(*facts.loss) : Cell(), facts.gradient_norm >= 0 ? Cell(facts.gradient_norm) : Cell(),
                 facts.loss_scale > 0 ? Cell(facts.loss_scale) : Cell(),
                 was_evaluated ? Cell(result_.eval_losses.back()) : Cell()});
  return {};
}

}  // namespace graphpipe::runtime
