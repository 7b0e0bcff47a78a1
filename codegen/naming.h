#pragma once
// How a generated function names what it reads, computes and leaves.

#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace graphpipe::codegen {

/// One tensor of the arrays that the functions of a stage share.
struct Place {
  enum class Array : uint8_t {
    kSlot,      // of the item
    kHandedOn,  // passed from one part of a function to a later one
    kWeight,
    kGradient,
  };
  Array array = Array::kSlot;
  size_t index = 0;
  auto operator<=>(const Place&) const = default;
};

/// "v17".
std::string value_name(ir::ValueId value);

/// Names by ids and positions: v17, slot[4], w[2].
class Naming {
 public:
  virtual ~Naming() = default;
  virtual std::string value(ir::ValueId value) { return value_name(value); }
  virtual std::string place(Place place);
  /// A local variable of one node.
  virtual std::string local(std::string_view name, ir::NodeId node) { return text(name, "_", node); }
  /// The number of a random stream.
  virtual std::string number(uint32_t stream) { return text(stream); }
  /// Whether comments tell which node a line belongs to.
  virtual bool tells_nodes() const { return true; }
};

/// Names in the order in which a function mentions things, and slots through a table `p` of their positions: v0,
/// slot[p[3]]. So functions that do the same with different tensors have the same text.
class BlockNaming final : public Naming {
 public:
  std::string value(ir::ValueId value) override;
  std::string place(Place place) override;
  std::string local(std::string_view name, ir::NodeId node) override;
  std::string number(uint32_t stream) override;
  bool tells_nodes() const override { return false; }

  /// The table p of what has been named so far.
  const std::vector<size_t>& table() const { return table_; }

 private:
  std::string entry(size_t number);

  std::map<ir::ValueId, size_t> values_;
  std::map<Place, std::string> places_;
  std::map<ir::NodeId, size_t> locals_;
  std::map<uint32_t, std::string> numbers_;
  std::vector<size_t> table_;
};

}  // namespace graphpipe::codegen
