#pragma once
// Memory that tensors take in a count: who uses it, and how much is held at once.

#include <algorithm>
#include <vector>

#include "codegen/tensor_layout.h"

namespace graphpipe::codegen {

/// Memory that tensors share.
struct Storage {
  int64_t bytes = 0;
  int users = 0;
};

struct Tensor {
  size_t storage = 0;
  TensorLayout layout;
};

class TensorHeap {
 public:
  /// A tensor with memory of its own, and one user.
  Tensor make(int64_t bytes, TensorLayout layout) {
    storages_.push_back({bytes, 0});
    const Tensor tensor{storages_.size() - 1, std::move(layout)};
    take(tensor);
    return tensor;
  }
  /// One user more, one user less: memory ends with its last.
  void take(const Tensor& tensor) {
    if (storages_[tensor.storage].users++ == 0) held_ += storages_[tensor.storage].bytes;
  }
  void drop(const Tensor& tensor) {
    if (--storages_[tensor.storage].users == 0) held_ -= storages_[tensor.storage].bytes;
  }
  /// Whether the tensor is all of its memory, in order, and nobody else uses that.
  bool owns(const Tensor& tensor, int64_t bytes) const {
    const Storage& storage = storages_[tensor.storage];
    return storage.users == 1 && storage.bytes == bytes && tensor.layout.is_contiguous();
  }

  int64_t held() const { return held_; }
  /// Notes what is held, and `more` beside it for a moment.
  void note(int64_t more = 0) { most_ = std::max(most_, held_ + more); }
  /// The most that was held since begin(), as far as it was noted.
  int64_t most() const { return most_; }
  void begin() { most_ = held_; }

 private:
  std::vector<Storage> storages_;
  int64_t held_ = 0, most_ = 0;
};

}  // namespace graphpipe::codegen
