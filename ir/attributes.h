#pragma once
// Attributes of a node: an ordered list of named constants, printed and parsed by the graph text.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/types.h"

namespace graphpipe::ir {

/// Dims is for shapes that hold the batch, such as the target of a Reshape.
using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Shape>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> items);

  /// Replaces the value where the name exists. Names are kept sorted, so equal sets print equally.
  void set(std::string_view name, AttributeValue value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const AttributeValue* find(std::string_view name) const;

  /// The value, or `fallback` where the name is absent. A value of another type is a defect (GP_CHECK):
  /// the frontend has checked types before it made the node.
  int64_t get_int(std::string_view name, int64_t fallback) const;
  double get_double(std::string_view name, double fallback) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> get_ints(std::string_view name, std::vector<int64_t> fallback = {}) const;
  std::vector<double> get_doubles(std::string_view name, std::vector<double> fallback = {}) const;
  Shape get_shape(std::string_view name) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<std::string, AttributeValue>> items_;
};

}  // namespace graphpipe::ir
