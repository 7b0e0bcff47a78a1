#include "driver/report/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "driver/report/stored_numbers.h"
#include "wire/scan_numbers.h"

namespace graphpipe::driver {
namespace {

/// A tensor's own norm counts only down to this part of the largest norm, unless its tolerance says otherwise.
constexpr double kNormFloor = 1e-3;

/// A unit in the last place of a format, relative to the number, at most (its machine epsilon); 0 for integers.
double unit_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat16:
      return 0x1p-10;
    case ir::DType::kBFloat16:
      return 0x1p-7;
    case ir::DType::kFloat32:
      return 0x1p-23;
    case ir::DType::kFloat64:
      return 0x1p-52;
    default:
      return 0;
  }
}

/// By how much an optimizer may have moved the elements of a weight because of rounding.
struct UpdateMoves {
  /// The second moments, where the optimizer has them, and the weights before the step.
  StoredNumbers moments, before;
  double rate = 0, rounding = 0, momentum_factor = 0, bound = 0, epsilon = 0, unit = 0;

  /// Of the elements from `first` on, whose values after the step these are.
  void explain(size_t first, std::span<const double> expected, std::span<double> explained) const {
    std::vector<double> start(expected.size());
    before.decode(first, start);
    if (moments.size() == 0) std::ranges::fill(explained, rate * rounding * momentum_factor);
    else moments.decode(first, explained);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (moments.size() > 0) explained[i] = move_of(explained[i]);
      explained[i] += unit * std::max(std::abs(expected[i]), std::abs(start[i]));
    }
  }

 private:
  double move_of(double moment) const {
    const double normaliser = std::sqrt(std::max(moment, 0.0)) + epsilon;
    return rate * std::min(2 * bound, (1 + bound) * rounding / std::max(normaliser, 1e-300));
  }
};

/// The norm that differences are relative to, and the differences that the optimizer explains.
struct Measure {
  double norm = 0;
  std::optional<UpdateMoves> moves;
};

/// The rule for weights after a step (compare_tensors.h).
class UpdateRule {
 public:
  static Result<UpdateRule> make(const UpdateNoise& noise) {
    UpdateRule rule(noise);
    const bool adam = !noise.second_moments.empty();
    if (!adam && noise.gradients.empty()) return rule;
    GP_TRY(StoredTensors file, StoredTensors::open(adam ? noise.second_moments : noise.gradients));
    GP_TRY(StoredTensors before, StoredTensors::open(noise.before));
    rule.file_.emplace(std::move(file));
    rule.before_.emplace(std::move(before));
    if (!noise.scales.empty()) {
      GP_TRY(StoredTensors scales, StoredTensors::open(noise.scales));
      rule.scales_.emplace(std::move(scales));
    }
    for (const auto& [name, entry] : rule.file_->entries())
      rule.largest_norm_ = std::max(rule.largest_norm_, rule.scale_of(name, rule.file_->numbers(entry)).norm);
    return rule;
  }

  /// Nothing where the tensor does not train.
  std::optional<Measure> measure(const files::TensorEntry& entry, const StoredNumbers& expected,
                                 const TensorTolerance& tolerances) const {
    if (!file_) return std::nullopt;
    const std::string& name = entry.name.raw();
    const StoredNumbers known = file_->numbers(name), before = before_->numbers(name);
    if (known.size() != expected.size() || before.size() != expected.size() || known.size() == 0) return std::nullopt;
    Scale scale = scale_of(name, known);
    scale.norm = std::max(scale.norm, tolerances.floor_of(name) * largest_norm_);
    const double rounding = std::min(tolerances.of(name) * scale.norm / std::sqrt(static_cast<double>(known.size())),
                                     largest_rounding(name, scale.norm, known.size()));
    return Measure{.norm = update_norm(before, expected, scale),
                   .moves = UpdateMoves{.moments = is_adam() ? known : StoredNumbers(),
                                        .before = before,
                                        .rate = scale.rate,
                                        .rounding = rounding,
                                        .momentum_factor = momentum_factor(),
                                        .bound = std::max(1.0, (1 - noise_.beta1) / std::sqrt(1 - noise_.beta2)),
                                        .epsilon = noise_.epsilon,
                                        .unit = unit_of(entry.dtype)}};
  }

 private:
  explicit UpdateRule(const UpdateNoise& noise) : noise_(noise) {}
  bool is_adam() const { return !noise_.second_moments.empty(); }
  double momentum_factor() const { return 1 / std::max(1 - noise_.momentum, 1e-3); }

  /// The error of a gradient's element that the differences seen so far explain; infinite where none were kept.
  double largest_rounding(const std::string& name, double norm, size_t elements) const {
    const auto seen = noise_.gradient_differences.find(name);
    if (seen == noise_.gradient_differences.end()) return INFINITY;
    constexpr double kOfArithmetic = 0x1p-20;  // 16 roundings of float32
    return std::max(2 * seen->second, kOfArithmetic * norm / std::sqrt(static_cast<double>(elements)));
  }

  /// What an update was multiplied with, and the norm of the gradients in it.
  struct Scale {
    double rate = 0, norm = 0;
  };
  Scale scale_of(const std::string& name, const StoredNumbers& known) const {
    const StoredNumbers recorded = scales_ ? scales_->numbers(name) : StoredNumbers();
    if (recorded.size() != 2) return {.rate = noise_.learning_rate, .norm = gradient_norm(known)};
    const std::vector<double> both = recorded.all();
    return {.rate = both[0], .norm = both[1]};
  }

  double update_norm(const StoredNumbers& before, const StoredNumbers& after, const Scale& scale) const {
    double sum = 0;
    for_each_pair(before, after, [&](double start, double end) { sum += (end - start) * (end - start); });
    return std::max(std::sqrt(sum), is_adam() ? 0 : scale.rate * scale.norm * momentum_factor());
  }

  double gradient_norm(const StoredNumbers& known) const {
    if (!is_adam()) return known.norm();
    double sum = 0;
    for_each_number(known, [&](double moment) { sum += moment; });
    return std::sqrt(std::max(sum, 0.0));
  }

  UpdateNoise noise_;
  std::optional<StoredTensors> file_, before_, scales_;
  double largest_norm_ = 0;
};

/// Two tensors of one name.
struct Pair {
  const files::TensorEntry* entry = nullptr;
  StoredNumbers found, expected;
};

/// By how much the elements differ beyond what the optimizer explains.
struct Excess {
  double sum_of_squares = 0, largest = -1;
  size_t worst = 0;
};

Excess excess_of(const Pair& pair, const std::optional<UpdateMoves>& moves) {
  Excess all;
  std::vector<double> found, expected, explained;
  for_each_block(pair.expected.size(), [&](size_t first, size_t count) {
    found.resize(count);
    expected.resize(count);
    explained.assign(count, 0);
    pair.found.decode(first, found);
    pair.expected.decode(first, expected);
    if (moves) moves->explain(first, expected, explained);
    for (size_t i = 0; i < count; ++i) {
      const double difference = found[i] - expected[i];
      const double excess = std::isnan(difference) ? INFINITY : std::max(0.0, std::abs(difference) - explained[i]);
      all.sum_of_squares += excess * excess;
      if (excess > all.largest) all.worst = first + i;
      all.largest = std::max(all.largest, excess);
    }
  });
  return all;
}

double number_at(const StoredNumbers& numbers, size_t index) {
  double number = 0;
  numbers.decode(index, {&number, 1});
  return number;
}

Comparison compare(const Pair& pair, const Measure& measure, double tolerance) {
  const Excess excess = excess_of(pair, measure.moves);
  const double sum = excess.sum_of_squares;
  // Infinite regardless of the norm, since an undefined number in the reference makes the norm undefined too.
  const double difference = std::isinf(sum) ? INFINITY : std::sqrt(sum) / std::max(measure.norm, 1e-30);
  Comparison comparison{.difference = difference, .tolerance = tolerance, .worst = std::nullopt};
  if (excess.largest > 0)
    comparison.worst = WorstElement{.tensor = pair.entry->name,
                                    .index = wire::index_text(pair.entry->shape, excess.worst),
                                    .found = number_at(pair.found, excess.worst),
                                    .expected = number_at(pair.expected, excess.worst)};
  return comparison;
}

Comparison different(const files::TensorEntry& entry) {
  return {.difference = INFINITY, .worst = WorstElement{.tensor = entry.name, .index = "", .found = 0, .expected = 0}};
}

}  // namespace

Result<bool> same_bytes(const std::string& a, const std::string& b) {
  GP_TRY(const MappedFile first, MappedFile::open(a));
  GP_TRY(const MappedFile second, MappedFile::open(b));
  return std::ranges::equal(first.bytes(), second.bytes());
}

double TensorTolerance::of(const std::string& tensor) const {
  const auto found = looser.find(tensor);
  return found == looser.end() ? usual : found->second;
}

double TensorTolerance::floor_of(const std::string& tensor) const {
  const auto found = floors.find(tensor);
  return found == floors.end() ? kNormFloor : found->second;
}

bool is_worse(const Comparison& a, const Comparison& b) {
  const auto in_tolerances = [](const Comparison& c) {
    return c.difference == 0 ? 0 : c.difference / std::max(c.tolerance, 1e-300);
  };
  return !(in_tolerances(a) <= in_tolerances(b));
}

Result<bool> all_finite(const std::string& path) {
  GP_TRY(const StoredTensors file, StoredTensors::open(path));
  bool finite = true;
  for (const auto& [name, entry] : file.entries())
    for_each_number(file.numbers(entry), [&](double number) { finite = finite && std::isfinite(number); });
  return finite;
}

Status keep_largest_differences(const std::string& path, const std::string& reference,
                                std::map<std::string, double>& largest) {
  GP_TRY(const StoredTensors mine, StoredTensors::open(path));
  GP_TRY(const StoredTensors theirs, StoredTensors::open(reference));
  for (const auto& [name, entry] : theirs.entries()) {
    const StoredNumbers found = mine.numbers(name), expected = theirs.numbers(entry);
    if (found.size() != expected.size()) continue;
    double& worst = largest[name];
    for_each_pair(found, expected, [&](double a, double b) { worst = std::max(worst, std::abs(a - b)); });
  }
  return Ok{};
}

Result<Comparison> compare_tensors(const std::string& path, const std::string& reference,
                                   const TensorTolerance& tolerance, const UpdateNoise& noise) {
  GP_TRY(const StoredTensors mine, StoredTensors::open(path));
  GP_TRY(const StoredTensors theirs, StoredTensors::open(reference));
  GP_TRY(const UpdateRule rule, UpdateRule::make(noise));
  for (const auto& [name, entry] : mine.entries())
    if (!theirs.entries().contains(name)) return different(entry);
  double largest_norm = 0;
  for (const auto& [name, entry] : theirs.entries())
    largest_norm = std::max(largest_norm, theirs.numbers(entry).norm());
  Comparison worst{.difference = 0, .tolerance = tolerance.usual, .worst = std::nullopt};
  for (const auto& [name, entry] : theirs.entries()) {
    const auto found = mine.entries().find(name);
    if (found == mine.entries().end() || found->second.shape != entry.shape || found->second.dtype != entry.dtype)
      return different(entry);
    const Pair pair{.entry = &entry, .found = mine.numbers(found->second), .expected = theirs.numbers(entry)};
    std::optional<Measure> measure = rule.measure(entry, pair.expected, tolerance);
    if (!measure)
      measure = Measure{.norm = std::max(pair.expected.norm(), tolerance.floor_of(name) * largest_norm), .moves = {}};
    Comparison comparison = compare(pair, *measure, tolerance.of(name));
    if (is_worse(comparison, worst)) worst = std::move(comparison);
  }
  return worst;
}

}  // namespace graphpipe::driver
