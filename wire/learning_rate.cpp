#include "wire/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

#include "support/check.h"
#include "support/mapped_file.h"
#include "wire/run_options.h"

namespace graphpipe::wire {
namespace {

// "N" or "N,X" with N from 1.
bool read_steps_and_value(const std::string& words, int64_t& steps, std::optional<double>& value) {
  const size_t comma = std::min(words.find(','), words.size());
  if (!read_value(words.substr(0, comma), steps) || steps < 1 || steps > kMaxSteps) return false;
  return comma == words.size() || read_value(words.substr(comma + 1), value);
}

}  // namespace

std::optional<LearningRate> LearningRate::parse(std::string_view schedule) {
  LearningRate rate;
  if (schedule == "constant") return rate;
  const size_t colon = schedule.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view shape = schedule.substr(0, colon);
  std::optional<double> value;
  if (!read_steps_and_value(std::string(schedule.substr(colon + 1)), rate.steps_, value)) return std::nullopt;
  if (shape == "linear") rate.shape_ = Shape::kLinear;
  else if (shape == "cosine") rate.shape_ = Shape::kCosine;
  else if (shape == "step" && value) rate.shape_ = Shape::kStep;
  else return std::nullopt;
  rate.value_ = value.value_or(0);
  return rate;
}

Result<LearningRate> LearningRate::of(const OptimizerOptions& options) {
  std::optional<LearningRate> rate = parse(options.schedule);
  GP_CHECK(rate.has_value());  // the flag's reader has looked
  rate->warmup_ = options.warmup;
  if (options.schedule_file.empty()) return *rate;
  GP_TRY(const MappedFile file, MappedFile::open(options.schedule_file));
  GP_TRY_VOID(rate->read_points({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                                options.schedule_file));
  return *rate;
}

Result<LearningRate> LearningRate::of_points(std::string_view text, const std::string& path) {
  LearningRate rate;
  GP_TRY_VOID(rate.read_points(text, path));
  return rate;
}

Status LearningRate::read_points(std::string_view text, const std::string& path) {
  shape_ = Shape::kPoints;
  std::istringstream lines{std::string(text)};
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string step, factor, more;
    if (!(words >> step)) continue;
    Point point;
    const bool is_point = words >> factor && !(words >> more) && read_value(step, point.step) && point.step >= 1 &&
                          point.step <= kMaxSteps && read_value(factor, point.factor);
    if (!is_point || (!points_.empty() && points_.back().step >= point.step - 1)) {
      return Diagnostic{.code = Code::kMalformedFile,
                        .origin = ModelText(path),
                        .message = graphpipe::text("line ", number, " is not a step and a factor, or no later step"),
                        .hint = "write \"STEP FACTOR\" lines, steps from 1 and ascending"};
    }
    --point.step;
    points_.push_back(point);
  }
  return Ok{};
}

double LearningRate::factor(int64_t step) const {
  if (step < warmup_) return static_cast<double>(step + 1) / static_cast<double>(warmup_);
  const int64_t after = step - warmup_;
  const double part =
      std::min(1.0, static_cast<double>(after) / static_cast<double>(std::max<int64_t>(1, steps_ - warmup_)));
  switch (shape_) {
    case Shape::kConstant:
      return 1;
    case Shape::kLinear:
      return 1 + (value_ - 1) * part;
    case Shape::kCosine:
      return value_ + (1 - value_) * (1 + std::cos(std::numbers::pi * part)) / 2;
    case Shape::kStep:
      return std::pow(value_, static_cast<double>(after / steps_));
    case Shape::kPoints:
      break;
  }
  const auto later = std::ranges::upper_bound(points_, step, {}, &Point::step);
  return later == points_.begin() ? 1 : std::prev(later)->factor;
}

}  // namespace graphpipe::wire
