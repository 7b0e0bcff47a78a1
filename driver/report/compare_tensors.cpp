#include "driver/report/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "files/safetensors.h"
#include "support/half_float.h"
#include "support/mapped_file.h"
#include "wire/scan_numbers.h"

namespace graphpipe::driver {
namespace {

/// A tensor's own norm counts only down to this part of the largest norm, unless its tolerance says otherwise.
constexpr double kNormFloor = 1e-3;

template <typename T, typename Convert>
std::vector<double> numbers_in(std::string_view bytes, const Convert& convert) {
  std::vector<double> numbers;
  numbers.reserve(bytes.size() / sizeof(T));
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + i, sizeof(T));
    numbers.push_back(convert(element));
  }
  return numbers;
}

std::vector<double> decode_numbers(ir::DType dtype, std::string_view bytes) {
  const auto as_double = [](auto number) { return static_cast<double>(number); };
  switch (dtype) {
    case ir::DType::kFloat32:
      return numbers_in<float>(bytes, as_double);
    case ir::DType::kFloat64:
      return numbers_in<double>(bytes, as_double);
    case ir::DType::kFloat16:
      return numbers_in<uint16_t>(bytes, float_of_half);
    case ir::DType::kBFloat16:
      return numbers_in<uint16_t>(bytes, float_of_bfloat);
    case ir::DType::kInt64:
      return numbers_in<int64_t>(bytes, as_double);
    default:
      return numbers_in<uint8_t>(bytes, as_double);  // integers are not rounded: any byte that differs counts
  }
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// A safetensors file whose tensors are decoded when they are asked for, one at a time.
class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path) {
    GP_TRY(MappedFile file, MappedFile::open(path));
    const auto size = static_cast<int64_t>(file.bytes().size());
    GP_TRY(files::SafetensorsIndex index,
           wire::parse_safetensors({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, size));
    TensorFile out(std::move(file));
    for (files::TensorEntry& entry : index.tensors) out.entries_[entry.name.raw()] = std::move(entry);
    return out;
  }

  const std::map<std::string, files::TensorEntry>& entries() const { return entries_; }
  std::vector<double> numbers(const files::TensorEntry& entry) const {
    const auto* start = reinterpret_cast<const char*>(file_.bytes().data()) + entry.offset;
    return decode_numbers(entry.dtype, {start, static_cast<size_t>(entry.length)});
  }
  /// Empty where there is no such tensor.
  std::vector<double> numbers(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? std::vector<double>() : numbers(found->second);
  }

 private:
  explicit TensorFile(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  std::map<std::string, files::TensorEntry> entries_;
};

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

/// The norm that differences are relative to, and the differences that the optimizer explains.
struct Measure {
  double norm = 0;
  /// By element; empty: none.
  std::vector<double> explained;
};

/// The rule for weights after a step (compare_tensors.h).
class UpdateRule {
 public:
  static Result<UpdateRule> make(const UpdateNoise& noise) {
    UpdateRule rule(noise);
    const bool adam = !noise.second_moments.empty();
    if (!adam && noise.gradients.empty()) return rule;
    GP_TRY(TensorFile file, TensorFile::open(adam ? noise.second_moments : noise.gradients));
    GP_TRY(TensorFile before, TensorFile::open(noise.before));
    rule.file_.emplace(std::move(file));
    rule.before_.emplace(std::move(before));
    if (!noise.scales.empty()) {
      GP_TRY(TensorFile scales, TensorFile::open(noise.scales));
      rule.scales_.emplace(std::move(scales));
    }
    for (const auto& [name, entry] : rule.file_->entries())
      rule.largest_norm_ = std::max(rule.largest_norm_, rule.scale_of(name, rule.file_->numbers(entry)).norm);
    return rule;
  }

  /// Nothing where the tensor does not train.
  std::optional<Measure> measure(const files::TensorEntry& entry, const std::vector<double>& expected,
                                 const TensorTolerance& tolerances) const {
    if (!file_) return std::nullopt;
    const std::string& name = entry.name.raw();
    const std::vector<double> known = file_->numbers(name), before = before_->numbers(name);
    if (known.size() != expected.size() || before.size() != expected.size() || known.empty()) return std::nullopt;
    Scale scale = scale_of(name, known);
    scale.norm = std::max(scale.norm, tolerances.floor_of(name) * largest_norm_);
    const double rounding = std::min(tolerances.of(name) * scale.norm / std::sqrt(static_cast<double>(known.size())),
                                     largest_rounding(name, scale.norm, known.size()));
    Measure measure{.norm = update_norm(before, expected, scale), .explained = moves(known, scale.rate, rounding)};
    const double unit = unit_of(entry.dtype);
    for (size_t i = 0; i < expected.size(); ++i)
      measure.explained[i] += unit * std::max(std::abs(expected[i]), std::abs(before[i]));
    return measure;
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
  Scale scale_of(const std::string& name, const std::vector<double>& known) const {
    const std::vector<double> recorded = scales_ ? scales_->numbers(name) : std::vector<double>();
    if (recorded.size() == 2) return {.rate = recorded[0], .norm = recorded[1]};
    return {.rate = noise_.learning_rate, .norm = gradient_norm(known)};
  }

  double update_norm(const std::vector<double>& before, const std::vector<double>& after, const Scale& scale) const {
    std::vector<double> update;
    update.reserve(after.size());
    for (size_t i = 0; i < after.size(); ++i) update.push_back(after[i] - before[i]);
    return std::max(norm(update), is_adam() ? 0 : scale.rate * scale.norm * momentum_factor());
  }

  /// By how much rounding of the gradient may have moved each element.
  std::vector<double> moves(const std::vector<double>& known, double rate, double rounding) const {
    if (!is_adam()) return std::vector<double>(known.size(), rate * rounding * momentum_factor());
    const double bound = std::max(1.0, (1 - noise_.beta1) / std::sqrt(1 - noise_.beta2));
    std::vector<double> moves;
    for (const double moment : known) {
      const double normaliser = std::sqrt(std::max(moment, 0.0)) + noise_.epsilon;
      moves.push_back(rate * std::min(2 * bound, (1 + bound) * rounding / std::max(normaliser, 1e-300)));
    }
    return moves;
  }

  double gradient_norm(const std::vector<double>& known) const {
    if (!is_adam()) return norm(known);
    double sum = 0;
    for (const double moment : known) sum += moment;
    return std::sqrt(std::max(sum, 0.0));
  }

  UpdateNoise noise_;
  std::optional<TensorFile> file_, before_, scales_;
  double largest_norm_ = 0;
};

/// Two tensors of one name.
struct Pair {
  const files::TensorEntry* entry = nullptr;
  std::vector<double> found, expected;
};

Comparison compare(const Pair& pair, const Measure& measure, double tolerance) {
  size_t worst = 0;
  double sum = 0, largest = -1;
  for (size_t i = 0; i < pair.expected.size(); ++i) {
    double excess = std::abs(pair.found[i] - pair.expected[i]);
    if (!measure.explained.empty()) excess = std::max(0.0, excess - measure.explained[i]);
    if (std::isnan(pair.found[i] - pair.expected[i])) excess = INFINITY;
    sum += excess * excess;
    if (excess > largest) worst = i;
    largest = std::max(largest, excess);
  }
  // Infinite regardless of the norm, since an undefined number in the reference makes the norm undefined too.
  const double difference = std::isinf(sum) ? INFINITY : std::sqrt(sum) / std::max(measure.norm, 1e-30);
  Comparison comparison{.difference = difference, .tolerance = tolerance, .worst = std::nullopt};
  if (largest > 0)
    comparison.worst = WorstElement{.tensor = pair.entry->name,
                                    .index = wire::index_text(pair.entry->shape, worst),
                                    .found = pair.found[worst],
                                    .expected = pair.expected[worst]};
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
  GP_TRY(const TensorFile file, TensorFile::open(path));
  for (const auto& [name, entry] : file.entries())
    if (!std::ranges::all_of(file.numbers(entry), [](double number) { return std::isfinite(number); })) return false;
  return true;
}

Status keep_largest_differences(const std::string& path, const std::string& reference,
                                std::map<std::string, double>& largest) {
  GP_TRY(const TensorFile mine, TensorFile::open(path));
  GP_TRY(const TensorFile theirs, TensorFile::open(reference));
  for (const auto& [name, entry] : theirs.entries()) {
    const std::vector<double> found = mine.numbers(name), expected = theirs.numbers(entry);
    if (found.size() != expected.size()) continue;
    double& worst = largest[name];
    for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  }
  return Ok{};
}

Result<Comparison> compare_tensors(const std::string& path, const std::string& reference,
                                   const TensorTolerance& tolerance, const UpdateNoise& noise) {
  GP_TRY(const TensorFile mine, TensorFile::open(path));
  GP_TRY(const TensorFile theirs, TensorFile::open(reference));
  GP_TRY(const UpdateRule rule, UpdateRule::make(noise));
  for (const auto& [name, entry] : mine.entries())
    if (!theirs.entries().contains(name)) return different(entry);
  double largest_norm = 0;
  for (const auto& [name, entry] : theirs.entries()) largest_norm = std::max(largest_norm, norm(theirs.numbers(entry)));
  Comparison worst{.difference = 0, .tolerance = tolerance.usual, .worst = std::nullopt};
  for (const auto& [name, entry] : theirs.entries()) {
    const auto found = mine.entries().find(name);
    if (found == mine.entries().end() || found->second.shape != entry.shape || found->second.dtype != entry.dtype)
      return different(entry);
    const Pair pair{.entry = &entry, .found = mine.numbers(found->second), .expected = theirs.numbers(entry)};
    std::optional<Measure> measure = rule.measure(entry, pair.expected, tolerance);
    if (!measure)
      measure =
          Measure{.norm = std::max(norm(pair.expected), tolerance.floor_of(name) * largest_norm), .explained = {}};
    Comparison comparison = compare(pair, *measure, tolerance.of(name));
    if (is_worse(comparison, worst)) worst = std::move(comparison);
  }
  return worst;
}

}  // namespace graphpipe::driver
