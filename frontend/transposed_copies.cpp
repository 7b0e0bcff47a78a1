#include "frontend/transposed_copies.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "frontend/external_data.h"

namespace graphpipe::frontend {
namespace {

constexpr int64_t kSampled = 256;
/// Fresh biases and norms hold one value; weights that were drawn hold as many as elements.
constexpr size_t kFewestValues = 8;

/// Reads single elements of a tensor.
class Elements {
 public:
  Elements(const ir::DataSource& data, int64_t element_bytes, const std::string& model_path,
           const std::string& trusted_root)
      : bytes_(element_bytes) {
    if (const auto* held = std::get_if<ir::InlineData>(&data)) inline_ = held;
    range_ = std::get_if<ir::FileRange>(&data);
    if (range_ == nullptr) return;
    const Result<int> file = open_weight_file(range_->path, model_path, trusted_root);
    if (file.ok()) file_ = *file;
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  ~Elements() {
    if (file_ >= 0) close(file_);
  }

  std::optional<std::string> at(int64_t index) const {
    const int64_t offset = index * bytes_;
    if (inline_ != nullptr) {
      if (offset + bytes_ > std::ssize(inline_->bytes)) return std::nullopt;
      return inline_->bytes.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes_));
    }
    if (file_ < 0 || offset + bytes_ > range_->length) return std::nullopt;
    std::string element(static_cast<size_t>(bytes_), '\0');
    if (pread(file_, element.data(), element.size(), range_->offset + offset) != bytes_) return std::nullopt;
    return element;
  }

 private:
  int64_t bytes_;
  const ir::InlineData* inline_ = nullptr;
  const ir::FileRange* range_ = nullptr;
  int file_ = -1;
};

std::optional<std::pair<int64_t, int64_t>> sides_of(const ir::TensorType& type) {
  if (type.shape.size() != 2 || !type.shape[0].is_fixed() || !type.shape[1].is_fixed()) return std::nullopt;
  return std::pair(type.shape[0].at(Samples(1)), type.shape[1].at(Samples(1)));
}

}  // namespace

bool is_transposed_copy(const ir::Graph& graph, const ir::Param& one, const ir::Param& other,
                        const std::string& model_path, const std::string& trusted_root) {
  const ir::TensorType &type = graph.value(one.value).type, &turned = graph.value(other.value).type;
  const auto sides = sides_of(type), turned_sides = sides_of(turned);
  if (!sides || !turned_sides || type.dtype != turned.dtype || sides->first != turned_sides->second ||
      sides->second != turned_sides->first)
    return false;
  const auto [rows, columns] = *sides;
  const int64_t bytes = ir::bytes_per_element(type.dtype);
  const Elements elements(one.data, bytes, model_path, trusted_root);
  const Elements turned_elements(other.data, bytes, model_path, trusted_root);
  const int64_t count = rows * columns, step = std::max<int64_t>(1, count / kSampled);
  std::set<std::string> values;
  for (int64_t index = 0; index < count; index += step) {
    const std::optional<std::string> value = elements.at(index);
    if (!value || value != turned_elements.at(index % columns * rows + index / columns)) return false;
    values.insert(*value);
  }
  return values.size() >= kFewestValues;
}

}  // namespace graphpipe::frontend
