#pragma once
// Sets of small numbers as bits, 64 to a word: single ones, and rows of words that lie side by side.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graphpipe {

using BitWords = std::vector<uint64_t>;

/// Words that hold so many bits.
constexpr size_t words_for(size_t bits) { return (bits + 63) / 64; }

inline bool has_bit(const uint64_t* words, size_t bit) { return (words[bit / 64] >> (bit % 64) & 1) != 0; }
inline void set_bit(uint64_t* words, size_t bit) { words[bit / 64] |= uint64_t{1} << (bit % 64); }
inline void flip_bit(uint64_t* words, size_t bit) { words[bit / 64] ^= uint64_t{1} << (bit % 64); }

/// Whether every bit of `small` is one of `large`.
inline bool is_subset(const uint64_t* small, const uint64_t* large, size_t width) {
  for (size_t w = 0; w < width; ++w)
    if ((small[w] & ~large[w]) != 0) return false;
  return true;
}

/// The bits that are set, ascending.
template <typename Visit>
void for_each_bit(std::span<const uint64_t> words, Visit&& visit) {
  for (size_t w = 0; w < words.size(); ++w)
    for (uint64_t rest = words[w]; rest != 0; rest &= rest - 1)
      visit(w * 64 + static_cast<size_t>(std::countr_zero(rest)));
}

/// A set of numbers below a size; numbers beyond it make it larger.
class BitSet {
 public:
  BitSet() = default;
  explicit BitSet(size_t size) : words_(words_for(size), 0) {}

  bool contains(size_t item) const { return item / 64 < words_.size() && has_bit(words_.data(), item); }
  /// Returns whether the item was new.
  bool insert(size_t item) {
    if (item / 64 >= words_.size()) words_.resize(item / 64 + 1, 0);
    if (has_bit(words_.data(), item)) return false;
    set_bit(words_.data(), item);
    return true;
  }
  void erase(size_t item) {
    if (contains(item)) flip_bit(words_.data(), item);
  }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for_each_bit(words_, visit);
  }
  bool operator==(const BitSet&) const = default;

 private:
  BitWords words_;
};

/// As many sets of numbers below one size, all empty at first.
class BitRows {
 public:
  BitRows(size_t rows, size_t size) : width_(words_for(size)), words_(rows * width_, 0) {}

  /// Words of a row.
  size_t width() const { return width_; }
  uint64_t* operator[](size_t row) { return words_.data() + row * width_; }
  const uint64_t* operator[](size_t row) const { return words_.data() + row * width_; }
  bool contains(size_t row, size_t item) const { return has_bit((*this)[row], item); }
  void insert(size_t row, size_t item) { set_bit((*this)[row], item); }
  /// Adds what another row holds.
  void merge(size_t row, size_t other) {
    for (size_t w = 0; w < width_; ++w) (*this)[row][w] |= (*this)[other][w];
  }

 private:
  size_t width_;
  BitWords words_;
};

}  // namespace graphpipe
