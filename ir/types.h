#pragma once
// The small words of the operator graph: ids, element types, dimensions that may hold the batch.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/id.h"
#include "support/units.h"
#include "wire/element_type.h"

namespace graphpipe::ir {

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;
using ParamId = Id<struct ParamTag>;

using DType = wire::ElementType;

/// "f32", "i64", "bool", ...: the spelling of the graph text, of manifests and of profiles.
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_of_name(std::string_view name);
int64_t bytes_per_element(DType dtype);
bool is_floating(DType dtype);

/// One dimension: factor * B^power, where B is the number of samples that the code is run with.
/// power 0 is an ordinary size. 4*B is {4, 1}; the B*B of a flattened similarity matrix is {1, 2}.
struct Dim {
  int64_t factor = 1;
  int power = 0;

  static constexpr Dim fixed(int64_t size) { return {size, 0}; }
  static constexpr Dim batch(int64_t factor = 1) { return {factor, 1}; }
  constexpr bool is_fixed() const { return power == 0; }
  /// The size at `samples` samples. Needs: samples >= 0 and a product below 2^63 (the verifier's limit is 2^48).
  int64_t at(Samples samples) const;
  constexpr bool operator==(const Dim&) const = default;
};

using Shape = std::vector<Dim>;

/// The size with so many samples; nothing where 64 bits do not hold it.
std::optional<int64_t> size_at(Dim dim, Samples samples);

/// Product of the dims as a Dim (factors multiply, powers add); nullopt where the factor would exceed 2^48.
std::optional<Dim> element_count(const Shape& shape);

struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

/// Bytes of a tensor of this type at `samples` samples. Stops at 2^56, which no machine has: an absurd shape is then
/// refused for its memory, and sums of sizes do not overflow.
Bytes byte_size(const TensorType& type, Samples samples);

/// How a value depends on the samples (docs/semantics.md, section 1).
enum class BatchKind : uint8_t {
  kNone,   // the same for all micro-batches: weights, position tables, a logit scale
  kAxis,   // one axis is the batch, times a constant; rows of a sample range can be sliced
  kMixed,  // samples are mixed: [B, B], batch statistics, a loss
};
std::string_view batch_kind_name(BatchKind kind);

/// Which pass of a training step a node belongs to.
enum class Phase : uint8_t { kForward, kInputGradient, kWeightGradient };
/// "F", "I", "W".
std::string_view phase_name(Phase phase);

}  // namespace graphpipe::ir
