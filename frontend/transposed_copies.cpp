#include "frontend/transposed_copies.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "frontend/external_data.h"
#include "support/text.h"

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

}  // namespace

std::string sample_of_matrix(const ir::TensorType& type, const ir::DataSource& data, bool turned,
                             const WeightFiles& files) {
  if (type.shape.size() != 2 || !type.shape[0].is_fixed() || !type.shape[1].is_fixed()) return {};
  // It has its name again (restore_parameters.h).
  if (const auto* range = std::get_if<ir::FileRange>(&data); range != nullptr && range->is_transposed) return {};
  // Of the matrix: its copy has columns for rows.
  int64_t rows = type.shape[0].at(Samples(1)), columns = type.shape[1].at(Samples(1));
  if (turned) std::swap(rows, columns);
  const Elements elements(data, ir::bytes_per_element(type.dtype), files.model_path, files.trusted_root);
  const int64_t count = rows * columns, step = std::max<int64_t>(1, count / kSampled);
  std::set<std::string> values;
  std::string sample = text(ir::dtype_name(type.dtype), " ", rows, " ", columns, " ");
  for (int64_t index = 0; index < count; index += step) {
    const std::optional<std::string> value = elements.at(turned ? index % columns * rows + index / columns : index);
    if (!value) return {};
    sample += *value;
    values.insert(*value);
  }
  return values.size() < kFewestValues ? std::string() : sample;
}

bool may_be_transposes(const Tensor& matrix, const Tensor& copy, TensorSource& tensors, const WeightFiles& files) {
  const auto one = tensors.locate(matrix, ModelText(matrix.name)), other = tensors.locate(copy, ModelText(copy.name));
  if (!one || !other) return true;  // it is reported where they are bound
  const std::string sample = sample_of_matrix(one->type, one->data, false, files);
  return sample.empty() || sample == sample_of_matrix(other->type, other->data, true, files);
}

}  // namespace graphpipe::frontend
