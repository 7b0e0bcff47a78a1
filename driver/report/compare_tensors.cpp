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

/// Below this part of the largest norm a tensor's own norm does not count.
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
      return numbers_in<uint8_t>(bytes, as_double);  // of integers no rounding: any byte may tell
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
           files::parse_safetensors({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, size));
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

/// By how much the optimizer may have moved each element of a tensor because of rounding.
class NoiseModel {
 public:
  static Result<NoiseModel> make(const UpdateNoise& noise) {
    NoiseModel model(noise);
    const bool adam = !noise.second_moments.empty();
    if (!adam && noise.gradients.empty()) return model;
    GP_TRY(TensorFile file, TensorFile::open(adam ? noise.second_moments : noise.gradients));
    model.file_.emplace(std::move(file));
    for (const auto& [name, entry] : model.file_->entries())
      model.largest_norm_ = std::max(model.largest_norm_, model.gradient_norm(model.file_->numbers(entry)));
    return model;
  }

  /// Of `count` elements; nothing where the tensor does not train.
  std::vector<double> of(const std::string& name, size_t count) const {
    if (!file_) return {};
    const std::vector<double> known = file_->numbers(name);
    if (known.size() != count || count == 0) return {};
    const double rounding = noise_.tolerance * std::max(gradient_norm(known), kNormFloor * largest_norm_) /
                            std::sqrt(static_cast<double>(count));
    const double rate = noise_.learning_rate;
    if (!is_adam()) return std::vector<double>(count, rate * rounding / std::max(1 - noise_.momentum, 1e-3));
    const double bound = std::max(1.0, (1 - noise_.beta1) / std::sqrt(1 - noise_.beta2));
    std::vector<double> moves;
    for (const double moment : known) {
      const double normaliser = std::sqrt(std::max(moment, 0.0)) + noise_.epsilon;
      moves.push_back(rate * std::min(2 * bound, (1 + bound) * rounding / std::max(normaliser, 1e-300)));
    }
    return moves;
  }

 private:
  explicit NoiseModel(const UpdateNoise& noise) : noise_(noise) {}
  bool is_adam() const { return !noise_.second_moments.empty(); }
  double gradient_norm(const std::vector<double>& known) const {
    if (!is_adam()) return norm(known);
    double sum = 0;
    for (const double moment : known) sum += moment;
    return std::sqrt(std::max(sum, 0.0));
  }

  UpdateNoise noise_;
  std::optional<TensorFile> file_;
  double largest_norm_ = 0;
};

/// Two tensors of one name.
struct Pair {
  const files::TensorEntry* entry = nullptr;
  std::vector<double> found, expected;
};

/// `scale` is the norm that counts.
Comparison compare(const Pair& pair, double scale, const std::vector<double>& explained) {
  size_t worst = 0;
  double sum = 0, largest = -1;
  for (size_t i = 0; i < pair.expected.size(); ++i) {
    double excess = std::abs(pair.found[i] - pair.expected[i]);
    if (!explained.empty()) excess = std::max(0.0, excess - explained[i]);
    if (std::isnan(pair.found[i] - pair.expected[i])) excess = INFINITY;
    sum += excess * excess;
    if (excess > largest) worst = i;
    largest = std::max(largest, excess);
  }
  // Whatever the norm is, which an undefined number of the reference makes undefined too.
  const double difference = std::isinf(sum) ? INFINITY : std::sqrt(sum) / std::max(scale, 1e-30);
  Comparison comparison{.difference = difference, .worst = std::nullopt};
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

Result<Comparison> compare_tensors(const std::string& path, const std::string& reference, const UpdateNoise& noise) {
  GP_TRY(const TensorFile mine, TensorFile::open(path));
  GP_TRY(const TensorFile theirs, TensorFile::open(reference));
  GP_TRY(const NoiseModel model, NoiseModel::make(noise));
  for (const auto& [name, entry] : mine.entries())
    if (!theirs.entries().contains(name)) return different(entry);
  double largest_norm = 0;
  for (const auto& [name, entry] : theirs.entries()) largest_norm = std::max(largest_norm, norm(theirs.numbers(entry)));
  Comparison worst;
  for (const auto& [name, entry] : theirs.entries()) {
    const auto found = mine.entries().find(name);
    if (found == mine.entries().end() || found->second.shape != entry.shape || found->second.dtype != entry.dtype)
      return different(entry);
    const Pair pair{.entry = &entry, .found = mine.numbers(found->second), .expected = theirs.numbers(entry)};
    const double scale = std::max(norm(pair.expected), kNormFloor * largest_norm);
    Comparison comparison = compare(pair, scale, model.of(name, pair.expected.size()));
    if (!(comparison.difference <= worst.difference)) worst = std::move(comparison);
  }
  return worst;
}

}  // namespace graphpipe::driver
