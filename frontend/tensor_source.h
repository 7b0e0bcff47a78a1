#pragma once
// Where the elements of the file's tensors are: checks each against its type and dims, and reads the small ones.

#include <optional>
#include <string>
#include <vector>

#include "frontend/external_data.h"
#include "frontend/model.h"

namespace graphpipe::frontend {

struct SourcedTensor {
  ir::TensorType type;
  ir::DataSource data;
  /// The elements, if they are few enough to be folded (kKeptIntegerBytes, kKeptFloatBytes).
  std::optional<std::string> bytes;
};

class TensorSource {
 public:
  TensorSource(std::string model_path, const std::vector<Slot>& slots, std::string trusted_root, int64_t weight_limit)
      : model_path_(model_path),
        slots_(slots),
        external_(model_path, std::move(trusted_root)),
        weight_limit_(weight_limit) {}

  Result<SourcedTensor> locate(const Tensor& tensor, const ModelText& name);
  /// All elements, in the order of the dims; nothing where they cannot be read or take more than 256 MiB.
  std::optional<std::string> elements_of(const Tensor& tensor);
  const ExternalData& external() const { return external_; }
  /// Whether the elements are `parts` times the same; false if they cannot be read or divided.
  bool repeats(const ir::DataSource& data, int64_t parts) const;
  /// Where data files hold small integers and truth values, which may decide shapes and branches.
  const std::vector<ir::FileRange>& outside_constants() const { return outside_constants_; }

 private:
  /// As the file has it, whatever the tensor's layout, but for zeros.
  Result<SourcedTensor> locate_dense(const Tensor& tensor, const ModelText& name);

  std::string model_path_;
  const std::vector<Slot>& slots_;
  ExternalData external_;
  std::vector<ir::FileRange> outside_constants_;
  int64_t weight_limit_;
  int64_t weight_bytes_ = 0;
};

}  // namespace graphpipe::frontend
