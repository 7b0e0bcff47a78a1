#pragma once
// The numbers of safetensors files that are compared. They are decoded a block at a time: to compare two large models
// takes no more memory than to compare two small ones.

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/safetensors.h"
#include "support/mapped_file.h"

namespace graphpipe::driver {

/// The numbers of one tensor in a mapped file, which must outlive it.
class StoredNumbers {
 public:
  /// No numbers.
  StoredNumbers() = default;
  StoredNumbers(ir::DType dtype, std::string_view bytes) : dtype_(dtype), bytes_(bytes) {}

  /// Of floating-point numbers and int64 the elements; of other types the bytes, of which any that differs counts,
  /// since integers are not rounded.
  size_t size() const;
  /// The numbers from `first` on, as many as `out` has. Needs: first + out.size() <= size().
  void decode(size_t first, std::span<double> out) const;
  std::vector<double> all() const;
  /// The square root of the sum of squares.
  double norm() const;

 private:
  ir::DType dtype_ = ir::DType::kFloat32;
  std::string_view bytes_;
};

/// Calls visit(first, count) for the blocks of `size` numbers, in order.
template <typename Visit>
void for_each_block(size_t size, const Visit& visit) {
  constexpr size_t kBlock = 8192;  // several of them fit in the nearest caches
  for (size_t first = 0; first < size; first += kBlock) visit(first, std::min(kBlock, size - first));
}

/// Calls visit(number of a, number of b) in order. Needs: a.size() == b.size().
template <typename Visit>
void for_each_pair(const StoredNumbers& a, const StoredNumbers& b, const Visit& visit) {
  std::vector<double> of_a, of_b;
  for_each_block(a.size(), [&](size_t first, size_t count) {
    of_a.resize(count);
    of_b.resize(count);
    a.decode(first, of_a);
    b.decode(first, of_b);
    for (size_t i = 0; i < count; ++i) visit(of_a[i], of_b[i]);
  });
}

/// Calls visit(number) in order.
template <typename Visit>
void for_each_number(const StoredNumbers& numbers, const Visit& visit) {
  std::vector<double> block;
  for_each_block(numbers.size(), [&](size_t first, size_t count) {
    block.resize(count);
    numbers.decode(first, block);
    for (const double number : block) visit(number);
  });
}

class StoredTensors {
 public:
  /// Errors: kUnreadableFile, kMalformedFile.
  static Result<StoredTensors> open(const std::string& path);

  const std::map<std::string, files::TensorEntry>& entries() const { return entries_; }
  StoredNumbers numbers(const files::TensorEntry& entry) const;
  /// None where there is no such tensor.
  StoredNumbers numbers(const std::string& name) const;

 private:
  explicit StoredTensors(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  std::map<std::string, files::TensorEntry> entries_;
};

}  // namespace graphpipe::driver
