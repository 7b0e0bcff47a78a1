#pragma once
// What the `infer` and `work` functions of the entries share: checks of inputs and axes, broadcasting of shapes whose
// dims may contain the batch, the rule for batch kinds, and the common counts of flops and bytes.
//
// A check that fails returns a Diagnostic that names the node by its first origin. Sizes are products below 2^48:
// larger ones are rejected, so later arithmetic cannot overflow.

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op_def.h"

namespace graphpipe::ops {

using Inferred = Result<std::vector<ir::Value>>;

/// The largest rank that entries accept: the limit of ATen's element-wise kernels.
inline constexpr size_t kMaxRank = 64;

// --- problems ---

/// An error at this node: "<Op> <what>".
Diagnostic problem_at(const NodeView& node, Code code, std::string_view what, std::string hint);
/// A kBadModel error with the usual hint for a file that is not valid ONNX.
Diagnostic bad_model(const NodeView& node, std::string_view what);

/// The node has low..high inputs (trailing optional ones may be cut off), and the first `low` are given.
Status expect_inputs(const NodeView& node, size_t low, size_t high);
/// Inputs in the list that are given are of floating type.
Status expect_floating(const NodeView& node, std::initializer_list<size_t> inputs);
/// Inputs in the list that are given are of type int64 or int32.
Status expect_index(const NodeView& node, std::initializer_list<size_t> inputs);
/// Inputs in the list that are given have one element type.
Status expect_same_dtype(const NodeView& node, std::initializer_list<size_t> inputs);
/// Inputs i and j have the same type and shape.
Status expect_same_type(const NodeView& node, size_t i, size_t j);
/// Whether `from` broadcasts to `to` without changing it.
bool broadcasts_to(const ir::Shape& from, const ir::Shape& to);

// --- axes ---

/// A possibly negative axis as 0..rank-1.
Result<int> normalized_axis(const NodeView& node, int64_t axis, size_t rank);
/// The attribute `name` as an axis of a tensor of this rank.
Result<int> axis_attribute(const NodeView& node, std::string_view name, int64_t fallback, size_t rank);
/// Axes in ascending order; refuses duplicates.
Result<std::vector<int>> normalized_axes(const NodeView& node, const std::vector<int64_t>& axes, size_t rank);

// --- dims ---

/// The product, or nullopt from 2^48 on.
std::optional<ir::Dim> multiply(ir::Dim a, ir::Dim b);
/// a / b if it is a whole multiple at every sample count, otherwise nullopt. No precondition: b of 0 gives nullopt.
std::optional<ir::Dim> divide(ir::Dim a, ir::Dim b);
/// The product of the dims first .. last - 1. Needs: a part of a shape that was checked, so it cannot overflow.
ir::Dim product_of(const ir::Shape& shape, size_t first, size_t last);
/// "4*B", "64": for messages.
std::string dim_text(ir::Dim dim);
/// "[B, 64]".
std::string shape_text(const ir::Shape& shape);
/// Numpy broadcasting. A dim that contains the batch only broadcasts with itself or 1.
Result<ir::Shape> broadcast_shapes(const NodeView& node, const ir::Shape& a, const ir::Shape& b);

// --- outputs ---

/// Whether an op looks at several samples to make one row of its output.
enum class Mixing : uint8_t { kNone, kMixes };

/// An output of this type, with the batch kind that follows from its dims and the inputs: kMixed if an input is, if the
/// op mixes samples, if the batch disappears or occurs in several dims or powers; kAxis if one dim contains the batch;
/// otherwise kNone.
ir::Value make_value(const NodeView& node, ir::TensorType type, Mixing mixing = Mixing::kNone);
/// The outputs, after a check of rank and size. Every infer function ends with this.
Inferred checked(const NodeView& node, std::vector<ir::Value> outputs);
/// checked() for ops with one output.
Inferred one_output(const NodeView& node, ir::TensorType type, Mixing mixing = Mixing::kNone);
/// Whether axis `axis` of input i holds the batch.
bool is_batch_axis(const NodeView& node, size_t i, int axis);

/// Output 0 has the type and batch kind of input 0. For one-input ops on any element type.
Inferred same_as_first_input(const NodeView& node);
/// The same, for ops that are defined only on floating types; further inputs are ignored.
Inferred same_as_first_float_input(const NodeView& node);

// --- work ---

/// Number of elements at a sample count.
double elements(const ir::Value& value, Samples samples);
double bytes_of(const ir::Value& value, Samples samples);
/// Bytes of all given inputs and all outputs.
double bytes_touched(const NodeView& node, Samples samples);
/// `flops` per element of output 0; inputs read and outputs written once.
Work per_output_element(const NodeView& node, Samples samples, double flops);
/// `flops` per element of input 0: reductions.
Work per_input_element(const NodeView& node, Samples samples, double flops);
/// The same by kernels of functions.
Work function_of_output(const NodeView& node, Samples samples, double flops);
Work function_of_input(const NodeView& node, Samples samples, double flops);
Work one_flop_per_element(const NodeView& node, Samples samples);
/// Copies: bytes only.
Work copy_work(const NodeView& node, Samples samples);
/// Views cost nothing.
Work no_work(const NodeView& node, Samples samples);
/// A property of every node of an operator.
bool always(const NodeView& node);

/// Whether the number is within the range of float16, the narrowest type; infinities and NaN are.
inline bool fits_float16(double value) { return !std::isfinite(value) || std::abs(value) <= 65504; }

/// Whether the type has 16 bits: its sums are only accurate for a few hundred terms.
inline bool is_16_bits(ir::DType type) { return type == ir::DType::kFloat16 || type == ir::DType::kBFloat16; }

}  // namespace graphpipe::ops
