// Attention(q, k, v, mask): softmax(scale * q k^T + mask) v as one node that keeps one number per row of scores for its
// gradient; created by passes/fuse_attention. See runtime/kernels/attention.h.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/norm_helpers.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kAttention = "runtime/kernels/attention.h";
/// The maximum number of rows of scores that the kernels hold at a time, and the number of floats to a multiple of
/// which they pad their copies (runtime/kernels/attention_loops.h).
constexpr int64_t kRowsAtOnce = 64, kLanes = 16;

const ir::Shape& attention_shape(const NodeView& node, size_t i) { return node.input(i).type.shape; }

// q [.., Q, D], k [.., K, D], v [.., K, D] with one to three leading axes; from two on the last of them are the heads,
// which may be a fraction in k and v; mask broadcast to [.., Q, K].
Status expect_attention(const NodeView& node, size_t q, size_t mask) {
  const ir::Shape &left = attention_shape(node, q), &right = attention_shape(node, q + 1);
  const size_t rank = left.size();
  const auto refused = [&] {
    return bad_model(node, text("cannot attend with ", shape_text(left), " to ", shape_text(right), " and ",
                                shape_text(attention_shape(node, q + 2))));
  };
  if (rank < 3 || rank > 5 || right != attention_shape(node, q + 2) || right.size() != rank) return refused();
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool are_heads = rank > 3 && axis == rank - 3 && left[axis].is_fixed() && right[axis].is_fixed();
    if (axis == rank - 2) continue;
    if (are_heads && right[axis].factor > 0 && left[axis].factor % right[axis].factor == 0) continue;
    if (left[axis] != right[axis]) return refused();
  }
  if (!left[rank - 2].is_fixed() || !right[rank - 2].is_fixed() || !left[rank - 1].is_fixed()) return refused();
  ir::Shape scores = left;
  scores.back() = right[rank - 2];
  if (node.has_input(mask) && !broadcasts_to(attention_shape(node, mask), scores))
    return bad_model(node,
                     text("cannot add a mask ", shape_text(attention_shape(node, mask)), " to ", shape_text(scores)));
  return Ok{};
}

Inferred infer_attention(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 4));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2, 3}));
  GP_TRY_VOID(expect_attention(node, 0, 3));
  const ir::TensorType& type = node.input(0).type;
  const bool is_wide = type.dtype == ir::DType::kFloat64;
  ir::TensorType rows{is_wide ? ir::DType::kFloat64 : ir::DType::kFloat32, type.shape};
  rows.shape.pop_back();
  return checked(node, {make_value(node, type), make_value(node, std::move(rows))});
}

// The nodes read (gradient, q, k, v, result, rows, mask).
Inferred infer_attention_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 6, 7));
  GP_TRY_VOID(expect_attention(node, 1, 6));
  std::vector<ir::Value> gradients;
  for (size_t i = 1; i <= 3; ++i) gradients.push_back(make_value(node, node.input(i).type));
  return checked(node, std::move(gradients));
}

/// The same inputs, the mask too: its gradient.
Inferred infer_attention_mask_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 7, 7));
  GP_TRY_VOID(expect_attention(node, 1, 6));
  const bool sums_samples = std::ranges::all_of(attention_shape(node, 6), &ir::Dim::is_fixed);
  return one_output(node, node.input(6).type, sums_samples ? Mixing::kMixes : Mixing::kNone);
}

/// The copies that the kernels of CPUs make of a head: of some operands transposed, of others as they are, and of some
/// rows of scores and of operands.
struct HeadCopies {
  double transposed, as_is, scores, rows;
};

double head_scratch(const NodeView& node, size_t q, const HeadCopies& copies) {
  const ir::Shape &left = attention_shape(node, q), &right = attention_shape(node, q + 1);
  const auto padded = [](int64_t count) { return static_cast<double>((count + kLanes - 1) / kLanes * kLanes); };
  const int64_t columns = right[right.size() - 2].factor, width = right.back().factor;
  const auto rows = static_cast<double>(std::min(left[left.size() - 2].factor, kRowsAtOnce));
  return 4 * (copies.transposed * static_cast<double>(width) * padded(columns) +
              copies.as_is * static_cast<double>(columns) * padded(width) +
              rows * (copies.scores * padded(columns) + copies.rows * padded(width)));
}

/// Bytes of k and v repeated for all heads of q, where they have fewer: what operators that compute all scores take.
double repeated_heads(const NodeView& node, Samples samples, size_t q) {
  const ir::Shape &left = attention_shape(node, q), &right = attention_shape(node, q + 1);
  const size_t heads = left.size() - 3;
  if (heads == 0 || left[heads] == right[heads]) return 0;
  const double shared = static_cast<double>(left[heads].factor) / static_cast<double>(right[heads].factor);
  return 2 * shared * bytes_of(node.input(q + 1), samples);
}

/// Flops of `products` matrix products of Q x D x K in each head.
Work attention_work(const NodeView& node, Samples samples, size_t q, double products, const HeadCopies& copies) {
  const ir::Shape& right = attention_shape(node, q + 1);
  const auto columns = static_cast<double>(right[right.size() - 2].factor);
  const double multiplied = elements(node.input(q), samples) * columns;
  // For float64, LibTorch's operators materialise all scores, several times.
  const bool holds_all = node.input(q).type.dtype == ir::DType::kFloat64;
  const double all =
      3 * 8 * multiplied / static_cast<double>(right.back().factor) + 2 * repeated_heads(node, samples, q);
  return {.flops = 2 * products * multiplied,
          .bytes = bytes_touched(node, samples),
          .scratch = holds_all ? all : head_scratch(node, q, copies),
          .kernel = Kernel::kAttention};
}
Work attention_forward_work(const NodeView& node, Samples samples) {
  return attention_work(node, samples, 0, 2, {.transposed = 1, .as_is = 1, .scores = 1, .rows = 2});
}
/// The scores again, and their gradients; a sum for each row and column of the mask, where it has fewer. In float64 all
/// scores, their weights, and three steps of their gradient.
Work attention_mask_gradient_work(const NodeView& node, Samples samples) {
  constexpr double kOfAllScores = 5.0 / 3;
  Work work = attention_work(node, samples, 1, 2, {.transposed = 2, .as_is = 0, .scores = 2, .rows = 2});
  if (node.input(1).type.dtype == ir::DType::kFloat64) {
    work.scratch *= kOfAllScores;
    return work;
  }
  const ir::Shape &mask = attention_shape(node, 6), &left = attention_shape(node, 1), &right = attention_shape(node, 2);
  const ir::Dim rows = left[left.size() - 2], columns = right[right.size() - 2];
  const bool has_all = mask.size() > 1 && mask[mask.size() - 2] == rows && mask.back() == columns;
  if (has_all && node.input(6).type.dtype == ir::DType::kFloat32) return work;
  const double matrix =
      elements(node.input(6), samples) / static_cast<double>((mask.empty() ? 1 : mask.back().factor) *
                                                             (mask.size() > 1 ? mask[mask.size() - 2].factor : 1));
  work.scratch += 4 * matrix * static_cast<double>(rows.factor * columns.factor);
  return work;
}
Work attention_gradient_work(const NodeView& node, Samples samples) {
  return attention_work(node, samples, 1, 5, {.transposed = 2, .as_is = 3, .scores = 2, .rows = 3});
}

std::string attention_arguments(const NodeView& node) {
  return text(boolean(node.attributes().get_int("causal", 0) != 0), ", ",
              number(node.attributes().get_double("scale", 1)));
}

void emit_attention(Emitter& emitter) {
  const std::string mask = emitter.node().has_input(3) ? emitter.in(3) : "{}";
  assign_parts(emitter,
               text("graphpipe::runtime::attention(", filled_in(emitter, "$0, $1, $2, "), mask, ", ",
                    attention_arguments(emitter.node()), ")"),
               kAttention, 2);
}

void emit_attention_gradient(Emitter& emitter) {
  const std::string mask = emitter.node().has_input(6) ? emitter.in(6) : "{}";
  assign_parts(emitter,
               text("graphpipe::runtime::attention_gradient(", filled_in(emitter, "$0, $1, $2, $3, $4, $5, "), mask,
                    ", ", attention_arguments(emitter.node()), ")"),
               kAttention, 3);
}

void emit_attention_mask_gradient(Emitter& emitter) {
  emitter.assign(0,
                 text("graphpipe::runtime::attention_mask_gradient(", filled_in(emitter, "$0, $1, $2, $3, $4, $5, $6"),
                      ", ", attention_arguments(emitter.node()), ")"),
                 kAttention);
}

Status attention_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.input(0),  builder.input(1),
                                     builder.input(2),           builder.output(0), builder.output(1)};
  if (builder.forward().has_input(3)) inputs.push_back(builder.input(3));
  const ir::Attributes& attributes = builder.forward().attributes();
  if (builder.forward().has_input(3) && builder.wants(3))
    builder.set_input_gradient(3, builder.add_one(3, "AttentionGradMask", inputs, attributes));
  if (!builder.wants(0) && !builder.wants(1) && !builder.wants(2)) return Ok{};
  const std::vector<ir::ValueId> gradients = builder.add(0, "AttentionGrad", std::move(inputs), attributes);
  for (size_t i = 0; i < 3; ++i)
    if (builder.wants(i)) builder.set_input_gradient(i, gradients[i]);
  return Ok{};
}

/// Masks hold the lowest number of float32, which becomes infinite in 16 bits; a row that is fully masked would then
/// have no softmax.
bool has_mask(const NodeView& view) { return view.has_input(3); }

ir::Attributes attention_form(double scale, bool causal) { return {{"causal", int64_t{causal}}, {"scale", scale}}; }

std::vector<Example> attention_examples() {
  return {
      {.inputs = {normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4})},
       .attributes = attention_form(0.5, false),
       .outputs = 2},
      {.inputs = {normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4})},
       .attributes = attention_form(0.5, true),
       .outputs = 2},
      {.inputs = {normal({kB, 2, 3, 4}), normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4}), normal({kB, 1, 1, 5})},
       .attributes = attention_form(0.25, false),
       .outputs = 2},
      {.inputs = {normal({kB, 3, 4}), normal({kB, 5, 4}), normal({kB, 5, 4}), normal({3, 5})},
       .attributes = attention_form(1, false),
       .outputs = 2},
      {.inputs = {normal({kB, 4, 5, 4}), normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4})},
       .attributes = attention_form(0.5, true),
       .outputs = 2},
      {.inputs = {normal({kB, 4, 3, 4}), normal({kB, 2, 5, 4}), normal({kB, 2, 5, 4}), normal({kB, 4, 1, 5})},
       .attributes = attention_form(0.5, false),
       .outputs = 2},
      {.inputs = {normal({kB, 3, 2, 5, 4}), normal({kB, 3, 2, 5, 4}), normal({kB, 3, 2, 5, 4}), normal({3, 1, 5, 5})},
       .attributes = attention_form(0.5, false),
       .outputs = 2},
      {.inputs = {normal({kB, 3, 4, 2, 4}), normal({kB, 3, 2, 5, 4}), normal({kB, 3, 2, 5, 4})},
       .attributes = attention_form(0.5, false),
       .outputs = 2}};
}

/// Masks for rows of all heads, of each head, for all rows, of each sample, and of windows.
std::vector<Example> mask_gradient_examples() {
  const auto of = [](const ExampleShape& lead, const ExampleShape& mask) {
    const auto with = [&lead](std::initializer_list<int64_t> sizes) {
      ExampleShape shape = lead;
      for (const int64_t size : sizes) shape.emplace_back(size);
      return shape;
    };
    const ExampleShape left = with({3, 4}), right = with({5, 4});
    return Example{.inputs = {normal(left), normal(left), normal(right), normal(right), normal(left),
                              positive(with({3})), normal(mask)},
                   .attributes = attention_form(0.5, false)};
  };
  return {of({kB, 2}, {3, 5}), of({kB, 2}, {1, 2, 3, 5}), of({kB, 2}, {2, 1, 5}), of({kB, 2}, {kB, 1, 1, 5}),
          of({kB, 3, 2}, {3, 1, 3, 5})};
}

}  // namespace

std::span<const OpDef> attention_ops() {
  static const std::vector<OpDef> rows = {
      {.name = "Attention",
       .precision = Precision::kLower,
       .keeps_float32 = has_mask,
       .infer = infer_attention,
       .work = attention_forward_work,
       .gradient = attention_gradient,
       .emit = emit_attention,
       .heads_lie_inside_up_to = 5,
       .examples = attention_examples()},
      {.name = "AttentionGrad",
       .infer = infer_attention_gradient,
       .work = attention_gradient_work,
       .emit = emit_attention_gradient,
       .heads_lie_inside_up_to = 5,
       .examples = {{.inputs = {normal({kB, 2, 3, 4}), normal({kB, 2, 3, 4}), normal({kB, 2, 5, 4}),
                                normal({kB, 2, 5, 4}), normal({kB, 2, 3, 4}), positive({kB, 2, 3})},
                     .attributes = attention_form(0.5, false),
                     .outputs = 3},
                    {.inputs = {normal({kB, 4, 3, 4}), normal({kB, 4, 3, 4}), normal({kB, 2, 5, 4}),
                                normal({kB, 2, 5, 4}), normal({kB, 4, 3, 4}), positive({kB, 4, 3})},
                     .attributes = attention_form(0.5, false),
                     .outputs = 3}}},
      {.name = "AttentionGradMask",
       .infer = infer_attention_mask_gradient,
       .work = attention_mask_gradient_work,
       .emit = emit_attention_mask_gradient,
       .examples = mask_gradient_examples()}};
  return rows;
}

}  // namespace graphpipe::ops
