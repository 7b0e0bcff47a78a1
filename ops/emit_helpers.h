#pragma once
// Pieces of C++ text that `emit` functions share. All of it is composed of numbers and our own names, so no text from a
// model can reach generated code through here.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op_def.h"

namespace graphpipe::ops {

/// ATen headers that many entries name.
inline constexpr std::string_view kTensorHeader = "ATen/core/Tensor.h";  // all that methods need
inline constexpr std::string_view kSumHeader = "ATen/ops/sum.h", kMulHeader = "ATen/ops/mul.h",
                                  kWhereHeader = "ATen/ops/where.h";
/// For graphpipe::runtime::concat, index and index_put, which replace at::cat and similar functions.
inline constexpr std::string_view kTensorLists = "runtime/kernels/tensor_lists.h";
/// For graphpipe::runtime::scatter_add, which replaces at::scatter_add.
inline constexpr std::string_view kFixedOrder = "runtime/kernels/fixed_order.h";

/// A double literal that reads back to the same bits: "0.5", "1e-05", "-std::numeric_limits<double>::infinity()".
std::string number(double value);
/// The attribute "epsilon" of a normalisation, 1e-5 by default, as number() gives it.
std::string epsilon_text(const NodeView& node);
/// An int64_t literal; an expression for the smallest one, whose digits alone would be out of range.
std::string integer(int64_t value);
/// "{0, 2}", of int64_t.
std::string list(const std::vector<int64_t>& values);
std::string list(const std::vector<int>& values);
/// "true" or "false".
std::string boolean(bool value);
/// "at::kFloat".
std::string scalar_type(ir::DType dtype);

/// Output 0 = `function`(all given inputs), for example at::relu(v3).
void assign_call(Emitter& emitter, std::string_view function, std::string_view header);
/// Output 0 = `pattern` with $0 .. $9 replaced by the inputs' expressions. Methods of at::Tensor need no header of
/// their own, so `$0.mul($1.cos())` needs none but the outermost call's.
void assign_pattern(Emitter& emitter, std::string_view pattern, std::string_view header);
/// Outputs 0 .. `count` - 1 = the elements of the tuple that `call` returns.
void assign_parts(Emitter& emitter, std::string_view call, std::string_view header, size_t count);
/// The temporaries of a pattern, in float32 tensors of the size of the result: one for each call except the one that
/// makes the result, a quarter of one if a call returns booleans. Methods whose names end with _ work in place, and
/// expand makes a view.
double temporaries_of(std::string_view pattern);
/// The pattern with $0 .. $9 replaced.
std::string filled_in(const Emitter& emitter, std::string_view pattern);

}  // namespace graphpipe::ops
