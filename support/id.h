#pragma once
// Typed dense indices. NodeId and ValueId cannot be mixed up, and a map from one costs a vector.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include "support/bits.h"
#include "support/check.h"
#include "support/printed.h"

namespace graphpipe {

/// A 32-bit index of a kind of thing; default-constructed it names nothing.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(size_t index) : index_(static_cast<uint32_t>(index)) {}
  constexpr size_t index() const { return index_; }
  constexpr bool valid() const { return index_ != kNone; }
  operator Printed() const { return valid() ? Printed(index_) : Printed("none"); }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  uint32_t index_ = kNone;
};

template <typename Tag>
std::ostream& operator<<(std::ostream& out, Id<Tag> id) {
  return out << Printed(id).words();
}

/// A vector indexed by ids of one kind.
template <typename Key, typename T>
class IdMap {
 public:
  IdMap() = default;
  explicit IdMap(size_t size, const T& fill = T()) : items_(size, fill) {}

  typename std::vector<T>::reference operator[](Key key) {
    GP_CHECK(key.index() < items_.size());
    return items_[key.index()];
  }
  typename std::vector<T>::const_reference operator[](Key key) const {
    GP_CHECK(key.index() < items_.size());
    return items_[key.index()];
  }
  /// Appends an item and returns its id.
  Key push_back(T item) {
    items_.push_back(std::move(item));
    return Key(items_.size() - 1);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void resize(size_t size, const T& fill = T()) { items_.resize(size, fill); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool operator==(const IdMap&) const = default;

 private:
  std::vector<T> items_;
};

/// A set of ids, one bit each.
template <typename Key>
class IdSet {
 public:
  IdSet() = default;
  explicit IdSet(size_t size) : bits_(size) {}
  bool contains(Key key) const { return bits_.contains(key.index()); }
  /// Returns whether the key was new.
  bool insert(Key key) { return bits_.insert(key.index()); }
  void erase(Key key) { bits_.erase(key.index()); }
  bool operator==(const IdSet&) const = default;

 private:
  BitSet bits_;
};

/// All ids 0 .. count-1: `for (NodeId id : ids<NodeId>(n))`.
template <typename Key>
class IdRange {
 public:
  explicit IdRange(size_t count) : count_(count) {}
  struct iterator {
    size_t index;
    Key operator*() const { return Key(index); }
    iterator& operator++() {
      ++index;
      return *this;
    }
    bool operator!=(const iterator& other) const { return index != other.index; }
  };
  iterator begin() const { return {0}; }
  iterator end() const { return {count_}; }

 private:
  size_t count_;
};
template <typename Key>
IdRange<Key> ids(size_t count) {
  return IdRange<Key>(count);
}

}  // namespace graphpipe

template <typename Tag>
struct std::hash<graphpipe::Id<Tag>> {
  size_t operator()(graphpipe::Id<Tag> id) const { return id.index(); }
};
