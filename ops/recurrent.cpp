// LSTM and GRU over a whole sequence: ONNX's layout 0 and order of gates, default activations, no clipping, no
// peepholes, sequences of equal length; GRU with linear_before_reset = 1. Inputs x, w, r, bias, (sequence lengths:
// absent), initial h and, for LSTM, initial c. See runtime/recurrent.h.
//
// The gradient is one node that goes backward through the steps and produces the gradients of the gates; those of x, of
// the weights and of the bias are products and sums over them, in separate nodes.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/norm_helpers.h"
#include "wire/lstm_steps.h"

namespace graphpipe::ops {
namespace {

constexpr std::string_view kRecurrent = "runtime/recurrent.h";

bool is_lstm(const NodeView& node) { return node.node().op.starts_with("LSTM"); }

std::string direction_of(const NodeView& node) { return node.attributes().get_string("direction", "forward"); }
int64_t direction_count(const NodeView& node) { return direction_of(node) == "bidirectional" ? 2 : 1; }

std::string reading(const NodeView& node) {
  const std::string direction = direction_of(node);
  if (direction == "bidirectional") return "graphpipe::runtime::Reading::kBoth";
  return direction == "reverse" ? "graphpipe::runtime::Reading::kReverse" : "graphpipe::runtime::Reading::kForward";
}

// --- forward ---

Status expect_plain_form(const NodeView& node) {
  const ir::Attributes& attributes = node.attributes();
  const std::string direction = direction_of(node);
  const bool plain = attributes.get_int("layout", 0) == 0 && attributes.get_int("input_forget", 0) == 0 &&
                     !attributes.has("clip") && !attributes.has("activations") && !node.has_input(4) &&
                     !node.has_input(7) && (is_lstm(node) || attributes.get_int("linear_before_reset", 0) == 1);
  const bool known = direction == "forward" || direction == "reverse" || direction == "bidirectional";
  if (plain && known) return Ok{};
  return problem_at(node, Code::kUnsupportedOp, "has a form other than PyTorch's",
                    "use torch.nn.LSTM or torch.nn.GRU with batch_first=False and sequences of equal length");
}

/// T, B, H and the number of gates.
struct Sizes {
  ir::Dim steps, rows;
  int64_t hidden = 0, gates = 0, directions = 1;
};

Result<Sizes> sizes_of(const NodeView& node) {
  const ir::Shape &x = node.input(0).type.shape, &w = node.input(1).type.shape, &r = node.input(2).type.shape;
  Sizes sizes{.gates = is_lstm(node) ? 4 : 3, .directions = direction_count(node)};
  if (x.size() != 3 || w.size() != 3 || r.size() != 3 || !x[0].is_fixed() || x[0].factor < 1) {
    return bad_model(node, text("needs x [T, B, I] and weights of rank 3, found ", shape_text(x), ", ", shape_text(w),
                                " and ", shape_text(r)));
  }
  sizes.steps = x[0];
  sizes.rows = x[1];
  sizes.hidden = r[2].factor;
  const std::optional<ir::Dim> all = multiply(ir::Dim::fixed(sizes.gates), r[2]);
  const ir::Dim directions = ir::Dim::fixed(sizes.directions);
  if (!r[2].is_fixed() || !all || w != ir::Shape{directions, *all, x[2]} || r != ir::Shape{directions, *all, r[2]}) {
    return bad_model(node, text("has weights ", shape_text(w), " and ", shape_text(r), " for x ", shape_text(x)));
  }
  return sizes;
}

ir::Shape state_shape(const Sizes& sizes) {
  return {ir::Dim::fixed(sizes.directions), sizes.rows, ir::Dim::fixed(sizes.hidden)};
}
ir::Shape gate_shape(const Sizes& sizes, int64_t count) {
  return {ir::Dim::fixed(sizes.directions), sizes.steps, sizes.rows, ir::Dim::fixed(count * sizes.hidden)};
}

Inferred infer_recurrent(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 3, 8));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY_VOID(expect_same_dtype(node, {0, 1, 2, 3, 5, 6}));
  GP_TRY_VOID(expect_plain_form(node));
  GP_TRY(const Sizes sizes, sizes_of(node));
  const ir::Shape bias = {ir::Dim::fixed(sizes.directions), ir::Dim::fixed(2 * sizes.gates * sizes.hidden)};
  const auto fits = [&](size_t i, const ir::Shape& shape) {
    return !node.has_input(i) || node.input(i).type.shape == shape;
  };
  if (!fits(3, bias) || !fits(5, state_shape(sizes)) || !fits(6, state_shape(sizes))) {
    return bad_model(node, "has a bias or a first state that does not fit its weights");
  }
  const ir::DType dtype = node.input(0).type.dtype;
  const auto value = [&](ir::Shape shape) { return make_value(node, {dtype, std::move(shape)}); };
  std::vector<ir::Value> outputs = {
      value({sizes.steps, ir::Dim::fixed(sizes.directions), sizes.rows, ir::Dim::fixed(sizes.hidden)}),
      value(state_shape(sizes))};
  if (is_lstm(node)) outputs.push_back(value(state_shape(sizes)));
  outputs.push_back(value(gate_shape(sizes, 4)));
  if (is_lstm(node)) outputs.push_back(value(gate_shape(sizes, 1)));
  return checked(node, std::move(outputs));
}

/// What LSTMs of floats take that go by steps of the runtime's own: these, and sums of a direction's biases. Unset for
/// all others, and on a processor without such steps too little.
std::optional<double> steps_scratch(const NodeView& node, const ir::Value& recurrent) {
  const int64_t hidden = recurrent.type.shape[2].factor;
  if (!is_lstm(node) || recurrent.type.dtype != ir::DType::kFloat32 || !wire::fits_lstm_steps(hidden))
    return std::nullopt;
  const double gates = 4 * static_cast<double>(hidden);
  return (wire::lstm_step_floats(hidden) + gates) * sizeof(float);
}

// The results of all steps are listed step by step and then stacked, per direction and then for both
// (runtime/recurrent.cpp).
double forward_scratch(const NodeView& node, Samples samples) {
  if (const std::optional<double> of_steps = steps_scratch(node, node.input(2))) return *of_steps;
  constexpr size_t kStepsRank = 4;
  double all = 0, gates = 0;
  for (size_t i = 0; i < node.output_count(); ++i) {
    if (node.output(i).type.shape.size() != kStepsRank) continue;
    const double bytes = bytes_of(node.output(i), samples);
    all += bytes;
    gates = std::max(gates, bytes);
  }
  // In addition to a direction's list there are the products of its inputs, which are as large as its gates.
  return std::max(all, (all + gates) / static_cast<double>(direction_count(node)));
}

// Each element of y is computed from the rows of w and r of all gates.
Work recurrent_work(const NodeView& node, Samples samples) {
  const double inputs = elements(node.input(1), samples) + elements(node.input(2), samples);
  const ir::Shape& x = node.input(0).type.shape;
  const double positions = static_cast<double>(x[0].at(samples)) * static_cast<double>(x[1].at(samples));
  return {.flops = 2 * positions * inputs + 40 * elements(node.output(0), samples),
          .bytes = bytes_touched(node, samples),
          .scratch = forward_scratch(node, samples)};
}

/// Outputs 0 .. `count` - 1 from a function of the runtime.
void assign_runtime_parts(Emitter& emitter, const std::string& call, size_t count) {
  assign_parts(emitter, text("graphpipe::runtime::", call), kRecurrent, count);
}

void emit_recurrent(Emitter& emitter) {
  const bool lstm = is_lstm(emitter.node());
  const std::string cell = lstm ? ", " + emitter.in(6) : "";
  assign_runtime_parts(emitter,
                       text(lstm ? "lstm(" : "gru(", emitter.in(0), ", ", emitter.in(1), ", ", emitter.in(2), ", ",
                            emitter.in(3), ", ", emitter.in(5), cell, ", ", reading(emitter.node()), ")"),
                       lstm ? 5 : 3);
}

// --- gradient ---

ir::ValueId input_or_none(const GradientBuilder& builder, size_t i) {
  return builder.forward().has_input(i) ? builder.input(i) : ir::ValueId();
}

/// The gradients of x, w and r, phase by phase, from those of the gates as w's and r's products see them.
void add_products_of_both(GradientBuilder& builder, ir::ValueId for_w, ir::ValueId for_r, ir::ValueId previous) {
  const auto product = [&](size_t i, std::string equation, std::vector<ir::ValueId> inputs) {
    if (!builder.wants(i)) return;
    builder.set_input_gradient(i, builder.add_one(i, "Einsum", std::move(inputs), {{"equation", std::move(equation)}}));
  };
  product(0, "dtbg,dgi->tbi", {for_w, builder.input(1)});
  product(1, "dtbg,tbi->dgi", {for_w, builder.input(0)});
  product(2, "dtbg,dtbh->dgh", {for_r, previous});
}

/// The same in one direction: as those of linear layers, whose products the runtime chooses kernels for.
void add_products_of_one(GradientBuilder& builder, ir::ValueId for_w, ir::ValueId for_r, ir::ValueId previous) {
  const ir::Attributes first = {{"axes", std::vector<int64_t>{0}}}, turned = {{"transB", int64_t{1}}};
  const auto without_direction = [&](size_t i, ir::ValueId value) {
    return builder.add_one(i, "Squeeze", {value}, first);
  };
  const auto set_weight = [&](size_t i, ir::ValueId x, ir::ValueId gates) {
    const ir::ValueId gradient = builder.add_one(i, "LinearGradWeight", {x, without_direction(i, gates)}, turned);
    builder.set_input_gradient(i, builder.add_one(i, "Unsqueeze", {gradient}, first));
  };
  if (builder.wants(0)) {
    const std::vector<ir::ValueId> inputs = {without_direction(0, for_w), without_direction(0, builder.input(1))};
    builder.set_input_gradient(0, builder.add_one(0, "LinearGradInput", inputs, turned));
  }
  if (builder.wants(1)) set_weight(1, builder.input(0), for_w);
  if (builder.wants(2)) set_weight(2, without_direction(2, previous), for_r);
}

void add_products(GradientBuilder& builder, ir::ValueId for_w, ir::ValueId for_r, ir::ValueId previous) {
  const auto add = direction_count(builder.forward()) == 1 ? add_products_of_one : add_products_of_both;
  add(builder, for_w, for_r, previous);
  if (!builder.forward().has_input(3) || !builder.wants(3)) return;
  const ir::Attributes sum = {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", int64_t{0}}};
  const ir::ValueId bias_w = builder.add_one(3, "ReduceSum", {for_w}, sum);
  const ir::ValueId bias_r = for_r == for_w ? bias_w : builder.add_one(3, "ReduceSum", {for_r}, sum);
  builder.set_input_gradient(3, builder.add_one(3, "Concat", {bias_w, bias_r}, {{"axis", int64_t{1}}}));
}

ir::ValueId add_previous(GradientBuilder& builder, size_t for_input) {
  return builder.add_one(for_input, "RecurrentPreviousHidden", {builder.output(0), input_or_none(builder, 5)},
                         {{"direction", direction_of(builder.forward())}});
}

// The input whose gradient the backward pass through the steps serves: phase I if one on the batch's side is wanted.
size_t served_input(const GradientBuilder& builder) {
  for (size_t i : {0, 5, 6}) {
    if (builder.forward().has_input(i) && builder.wants(i)) return i;
  }
  for (size_t i : {1, 2}) {
    if (builder.wants(i)) return i;
  }
  return 3;
}

Status lstm_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 3));
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0),
                                           builder.output_gradient(1),
                                           builder.output_gradient(2),
                                           builder.output(3),
                                           builder.output(4),
                                           input_or_none(builder, 6),
                                           builder.input(2)};
  const std::vector<ir::ValueId> gradients =
      builder.add(served_input(builder), "LSTMGradGates", inputs, {{"direction", direction_of(builder.forward())}});
  const ir::ValueId previous = builder.wants(2) ? add_previous(builder, 2) : ir::ValueId();
  add_products(builder, gradients[0], gradients[0], previous);
  for (size_t i : {5, 6}) {
    if (builder.forward().has_input(i) && builder.wants(i)) builder.set_input_gradient(i, gradients[i - 4]);
  }
  return Ok{};
}

Status gru_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 2));
  const size_t served = served_input(builder);
  const ir::ValueId previous = add_previous(builder, served);
  const std::vector<ir::ValueId> inputs = {builder.output_gradient(0), builder.output_gradient(1), builder.output(2),
                                           previous, builder.input(2)};
  const std::vector<ir::ValueId> gradients =
      builder.add(served, "GRUGradGates", inputs, {{"direction", direction_of(builder.forward())}});
  add_products(builder, gradients[0], gradients[1], previous);
  if (builder.forward().has_input(5) && builder.wants(5)) builder.set_input_gradient(5, gradients[2]);
  return Ok{};
}

// [D, B, H] from gates [D, T, B, ..] and r [D, .., H].
ir::TensorType state_type(const NodeView& node, size_t gates, size_t r) {
  const ir::TensorType& type = node.input(gates).type;
  return {type.dtype, {type.shape[0], type.shape[2], node.input(r).type.shape.back()}};
}

// Gradients of outputs that nobody reads are absent, and so may be the initial state.
Status expect_given(const NodeView& node, size_t count, std::initializer_list<size_t> inputs) {
  GP_TRY_VOID(expect_inputs(node, 0, count));
  for (size_t i : inputs) {
    if (!node.has_input(i)) return bad_model(node, text("needs input ", i, ", which is absent"));
  }
  return Ok{};
}

Inferred infer_lstm_gates(const NodeView& node) {
  GP_TRY_VOID(expect_given(node, 7, {3, 4, 6}));
  if (node.input(3).type.shape.size() != 4) return bad_model(node, "needs gates of rank 4");
  const ir::Value state = make_value(node, state_type(node, 3, 6));
  return checked(node, {make_value(node, node.input(3).type), state, state});
}

Inferred infer_gru_gates(const NodeView& node) {
  GP_TRY_VOID(expect_given(node, 5, {2, 3, 4}));
  ir::TensorType type = node.input(2).type;
  if (type.shape.size() != 4) return bad_model(node, "needs gates of rank 4");
  type.shape[3] = node.input(4).type.shape[1];
  const ir::Value gates = make_value(node, type);
  return checked(node, {gates, gates, make_value(node, state_type(node, 2, 4))});
}

Inferred infer_previous(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 2));
  const ir::TensorType& y = node.input(0).type;
  if (y.shape.size() != 4) return bad_model(node, "needs an output of rank 4");
  return one_output(node, {y.dtype, {y.shape[1], y.shape[0], y.shape[2], y.shape[3]}});
}

Work gates_work(const NodeView& node, Samples samples) {
  const double hidden = static_cast<double>(node.output(node.output_count() - 1).type.shape.back().at(samples));
  Work work = per_output_element(node, samples, 2 * hidden + 10);
  if (const std::optional<double> of_steps = steps_scratch(node, node.input(node.input_count() - 1))) {
    work.scratch = *of_steps;
    return work;
  }
  for (size_t i = 0; i < node.output_count(); ++i) work.scratch += bytes_of(node.output(i), samples);
  return work;
}

// The states of each direction, before they are stacked.
Work previous_work(const NodeView& node, Samples samples) {
  Work work = copy_work(node, samples);
  work.scratch = bytes_of(node.output(0), samples);
  return work;
}

void emit_lstm_gates(Emitter& emitter) {
  std::string arguments;
  for (size_t i = 0; i < 7; ++i) arguments += emitter.in(i) + ", ";
  assign_runtime_parts(emitter, text("lstm_gate_gradient(", arguments, reading(emitter.node()), ")"), 3);
}
void emit_gru_gates(Emitter& emitter) {
  std::string arguments;
  for (size_t i = 0; i < 5; ++i) arguments += emitter.in(i) + ", ";
  assign_runtime_parts(emitter, text("gru_gate_gradient(", arguments, reading(emitter.node()), ")"), 3);
}
void emit_previous(Emitter& emitter) {
  emitter.assign(0,
                 text("graphpipe::runtime::previous_hidden(", emitter.in(0), ", ", emitter.in(1), ", ",
                      reading(emitter.node()), ")"),
                 kRecurrent);
}

// --- entries ---

Example recurrent_example(int64_t gates, std::string direction, bool has_state) {
  const int64_t directions = direction == "bidirectional" ? 2 : 1, hidden = 2;
  Example example{.inputs = {normal({3, kB, 4}), weight(normal({directions, gates * hidden, 4})),
                             weight(normal({directions, gates * hidden, hidden})),
                             weight(normal({directions, 2 * gates * hidden}))},
                  .attributes = {{"direction", std::move(direction)}, {"hidden_size", hidden}},
                  .outputs = gates == 4 ? 5U : 3U};
  if (gates == 3) example.attributes.set("linear_before_reset", int64_t{1});
  if (!has_state) return example;
  example.inputs.push_back(absent());
  example.inputs.push_back(normal({directions, kB, hidden}));
  if (gates == 4) example.inputs.push_back(normal({directions, kB, hidden}));
  return example;
}

std::vector<Example> recurrent_examples(int64_t gates) {
  return {recurrent_example(gates, "forward", false), recurrent_example(gates, "reverse", true),
          recurrent_example(gates, "bidirectional", true)};
}

std::vector<ParameterRole> recurrent_roles() {
  return {ParameterRole::kConstant, ParameterRole::kWeight, ParameterRole::kWeight, ParameterRole::kBias};
}

std::vector<OpDef> forward_rows() {
  return {{.name = "LSTM",
           .precision = Precision::kFloat32,
           .infer = infer_recurrent,
           .work = recurrent_work,
           .gradient = lstm_gradient,
           .emit = emit_recurrent,
           .roles = recurrent_roles(),
           .read_as_rows = {0},
           .examples = recurrent_examples(4)},
          {.name = "GRU",
           .precision = Precision::kFloat32,
           .infer = infer_recurrent,
           .work = recurrent_work,
           .gradient = gru_gradient,
           .emit = emit_recurrent,
           .roles = recurrent_roles(),
           .read_as_rows = {0},
           .examples = recurrent_examples(3)}};
}

// `state`: gradients of the last states, and the initial c.
Example lstm_gates_example(const ExampleInput& state) {
  return {.inputs = {normal({3, 1, kB, 2}), state, state, uniform01({1, 3, kB, 8}), normal({1, 3, kB, 2}), state,
                     weight(normal({1, 8, 2}))},
          .outputs = 3};
}

std::vector<OpDef> gradient_rows() {
  const ExampleInput y = normal({3, 1, kB, 2}), state = normal({1, kB, 2});
  return {
      {.name = "LSTMGradGates",
       .infer = infer_lstm_gates,
       .work = gates_work,
       .emit = emit_lstm_gates,
       .examples = {lstm_gates_example(normal({1, kB, 2})), lstm_gates_example(absent())}},
      {.name = "GRUGradGates",
       .infer = infer_gru_gates,
       .work = gates_work,
       .emit = emit_gru_gates,
       .examples = {{.inputs = {y, state, uniform01({1, 3, kB, 8}), normal({1, 3, kB, 2}), weight(normal({1, 6, 2}))},
                     .outputs = 3}}},
      {.name = "RecurrentPreviousHidden",
       .infer = infer_previous,
       .work = previous_work,
       .emit = emit_previous,
       .examples = {{.inputs = {y, state}}}}};
}

}  // namespace

std::span<const OpDef> recurrent_ops() {
  static const std::vector<OpDef> rows = joined({forward_rows(), gradient_rows()});
  return rows;
}

}  // namespace graphpipe::ops
