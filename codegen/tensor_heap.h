#pragma once
// A simulated heap of tensors: who uses which memory, and how much is held at once.

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/tensor_layout.h"
#include "ir/item_memory.h"

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
  /// Adds or removes one user: memory is freed with its last user.
  void take(const Tensor& tensor) {
    if (storages_[tensor.storage].users++ == 0) change(tensor.storage, true);
  }
  void drop(const Tensor& tensor) {
    if (--storages_[tensor.storage].users == 0) change(tensor.storage, false);
  }
  /// Whether the tensor covers all of its memory, in order, and is its only user.
  bool owns(const Tensor& tensor, int64_t bytes) const {
    const Storage& storage = storages_[tensor.storage];
    return storage.users == 1 && storage.bytes == bytes && tensor.layout.is_contiguous();
  }

  int64_t held() const { return held_; }
  /// Records what is held, plus `more` temporarily.
  void note(int64_t more = 0) {
    peak_ = std::max(peak_, held_ + more);
    if (more > 0) events_.push_back({.bytes = Bytes(more)});
  }
  /// The maximum held since begin(), as far as it was recorded.
  int64_t peak() const { return peak_; }
  /// All allocations and releases since begin().
  std::vector<ir::MemoryEvent> take_events() { return std::exchange(events_, {}); }
  void begin() {
    peak_ = held_;
    events_.clear();
  }

 private:
  void change(size_t storage, bool taken) {
    const int64_t bytes = storages_[storage].bytes;
    held_ += taken ? bytes : -bytes;
    if (bytes > 0) events_.push_back({storage, Bytes(bytes), taken});
  }

  std::vector<Storage> storages_;
  std::vector<ir::MemoryEvent> events_;
  int64_t held_ = 0, peak_ = 0;
};

}  // namespace graphpipe::codegen
