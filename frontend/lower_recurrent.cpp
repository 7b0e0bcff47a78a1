// LSTM and GRU in the forms that have rows; RNN, and GRU with linear_before_reset = 0, become their steps.

#include <algorithm>
#include <cctype>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;
using Values = std::vector<ValueId>;

constexpr int64_t kMaxSteps = 4096;

Diagnostic no_such_form(const NodeContext& context, std::string_view what) {
  return context.problem(Code::kUnsupportedOp, text(what, " is not supported"),
                         "use torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN as they are, with sequences of equal length");
}

int64_t directions_of(const NodeContext& context) {
  return context.string_attribute("direction", "forward") == "bidirectional" ? 2 : 1;
}

/// ONNX compares names of activations without case.
bool are_default(const std::vector<std::string>& given, const std::vector<std::string_view>& expected) {
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string_view wanted = expected[i % expected.size()];
    const auto same = [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    };
    if (!std::equal(given[i].begin(), given[i].end(), wanted.begin(), wanted.end(), same)) return false;
  }
  return given.empty() || given.size() % expected.size() == 0;
}

/// Lengths that say what the shape says anyway.
bool are_full_lengths(NodeContext& context, size_t input) {
  const Known* known = context.known(input);
  if (known == nullptr || known->elements.empty() || context.rank(0) != 3) return false;
  const Number steps = Number::of_dim(context.type(0).shape[0]);
  return std::all_of(known->elements.begin(), known->elements.end(), [&](const Number& n) { return n == steps; });
}

/// A first state of zeros is an absent one.
Result<ValueId> state_value(NodeContext& context, size_t input) {
  if (!context.has_input(input)) return ValueId();
  const Known* known = context.known(input);
  if (known != nullptr && !context.input(input).leaf && known->uniform && known->elements[0].factor() == 0)
    return ValueId();
  return context.value(input);
}

/// x, w, r, the bias or none, no lengths, the first states or none; trailing absent ones cut off.
Result<Values> operands(NodeContext& context, size_t states) {
  if (context.has_input(4) && !are_full_lengths(context, 4))
    return no_such_form(context, "the form with sequences of different length");
  Values inputs;
  for (size_t i = 0; i < 4; ++i) {
    GP_TRY(const ValueId value, context.value(i));
    inputs.push_back(value);
  }
  inputs.emplace_back();
  for (size_t i = 0; i < states; ++i) {
    GP_TRY(const ValueId state, state_value(context, 5 + i));
    inputs.push_back(state);
  }
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  return inputs;
}

Status check_form(NodeContext& context) {
  for (size_t i = 0; i < 3; ++i)
    if (!context.has_input(i)) return context.problem(Code::kBadModel, "lacks x or weights", "export the model again");
  if (context.node().find("clip") != nullptr) return no_such_form(context, "the form with clip");
  if (context.int_attribute("layout", 0) != 0) return no_such_form(context, "the form with layout 1");
  return Ok{};
}

/// One RNN, or GRU with linear_before_reset = 0, while it is unrolled. Sizes as in runtime/recurrent.h: x [T, B, I],
/// w [D, G * H, I], r [D, G * H, H], bias [D, 2 * G * H], with G = 1 or the gates z, r, h of a GRU.
class Unrolling {
 public:
  /// `activation`: the op of an RNN; empty for a GRU.
  Unrolling(NodeContext& context, Values inputs, std::string activation)
      : context_(context),
        inputs_(std::move(inputs)),
        activation_(std::move(activation)),
        gates_(activation_.empty() ? 3 : 1) {}

  Status run();

 private:
  Result<ValueId> one(std::string_view op, Values inputs, ir::Attributes attributes = {}) {
    GP_TRY(const Values results, context_.emit(op, std::move(inputs), std::move(attributes)));
    return results[0];
  }
  Result<ValueId> row_of(size_t input, int64_t direction);
  Result<ValueId> products(int64_t direction);
  Result<Values> states(int64_t direction, bool backward);
  Result<Values> recurrence(int64_t direction);
  Result<ValueId> next_state(ValueId sum, ValueId state, const Values& recurrence);
  Result<ValueId> next_gated(ValueId sum, ValueId state, const Values& recurrence);

  NodeContext& context_;
  Values inputs_;
  std::string activation_;
  int64_t gates_;
  Dim steps_, rows_, hidden_;
};

/// Row `direction` of an operand, without that axis.
Result<ValueId> Unrolling::row_of(size_t input, int64_t direction) {
  const std::vector<int64_t> first{direction}, last{direction + 1}, axis{0}, step{1};
  GP_TRY(const ValueId row,
         one("Slice", {inputs_[input]}, {{"starts", first}, {"ends", last}, {"axes", axis}, {"steps", step}}));
  return one("Squeeze", {row}, {{"axes", axis}});
}

/// What the inputs and both biases give to every step: [T, B, G * H].
Result<ValueId> Unrolling::products(int64_t direction) {
  const ir::Attributes swap{{"perm", std::vector<int64_t>{1, 0}}};
  GP_TRY(const ValueId w, row_of(1, direction));
  GP_TRY(const ValueId turned, one("Transpose", {w}, swap));
  GP_TRY(ValueId sums, one("MatMul", {inputs_[0], turned}));
  if (inputs_.size() <= 3 || !inputs_[3].valid()) return sums;
  GP_TRY(const ValueId both, row_of(3, direction));
  const std::vector<int64_t> sizes(2, gates_ * hidden_.factor);
  GP_TRY(const Values halves, context_.emit("Split", {both}, {{"axis", int64_t{0}}, {"sizes", sizes}}, 2));
  for (const ValueId bias : halves) {
    GP_TRY(sums, one("Add", {sums, bias}));
  }
  return sums;
}

/// The recurrent weights by which a state is multiplied: [H, H], or [H, 2 * H] of z and r and [H, H] of h.
Result<Values> Unrolling::recurrence(int64_t direction) {
  GP_TRY(const ValueId r, row_of(2, direction));
  GP_TRY(const ValueId turned, one("Transpose", {r}, {{"perm", std::vector<int64_t>{1, 0}}}));
  if (gates_ == 1) return Values{turned};
  const std::vector<int64_t> sizes{2 * hidden_.factor, hidden_.factor};
  return context_.emit("Split", {turned}, {{"axis", int64_t{1}}, {"sizes", sizes}}, 2);
}

/// z, r = sigmoid(sum + state * R), h = tanh(sum + (r * state) * R); the next state is h + z * (state - h). No state is
/// one of zeros.
Result<ValueId> Unrolling::next_gated(ValueId sum, ValueId state, const Values& recurrence) {
  const std::vector<int64_t> two{2 * hidden_.factor, hidden_.factor}, each(2, hidden_.factor);
  GP_TRY(const Values sums, context_.emit("Split", {sum}, {{"axis", int64_t{2}}, {"sizes", two}}, 2));
  ValueId gates = sums[0], candidate = sums[1];
  if (state.valid()) {
    GP_TRY(const ValueId recurrent, one("MatMul", {state, recurrence[0]}));
    GP_TRY(gates, one("Add", {gates, recurrent}));
  }
  GP_TRY(gates, one("Sigmoid", {gates}));
  GP_TRY(const Values apart, context_.emit("Split", {gates}, {{"axis", int64_t{2}}, {"sizes", each}}, 2));
  if (state.valid()) {
    GP_TRY(const ValueId kept, one("Mul", {apart[1], state}));
    GP_TRY(const ValueId recurrent, one("MatMul", {kept, recurrence[1]}));
    GP_TRY(candidate, one("Add", {candidate, recurrent}));
  }
  GP_TRY(candidate, one("Tanh", {candidate}));
  GP_TRY(ValueId difference, state.valid() ? one("Sub", {state, candidate}) : one("Neg", {candidate}));
  GP_TRY(difference, one("Mul", {apart[0], difference}));
  return one("Add", {candidate, difference});
}

Result<ValueId> Unrolling::next_state(ValueId sum, ValueId state, const Values& recurrence) {
  if (gates_ == 3) return next_gated(sum, state, recurrence);
  if (state.valid()) {
    GP_TRY(const ValueId recurrent, one("MatMul", {state, recurrence[0]}));
    GP_TRY(sum, one("Add", {sum, recurrent}));
  }
  return one(activation_, {sum});
}

/// The state after each step [1, B, H], in the order of time.
Result<Values> Unrolling::states(int64_t direction, bool backward) {
  const auto count = static_cast<size_t>(steps_.factor);
  GP_TRY(const ValueId sums, products(direction));
  const std::vector<int64_t> sizes(count, 1);
  GP_TRY(const Values parts, context_.emit("Split", {sums}, {{"axis", int64_t{0}}, {"sizes", sizes}}, count));
  GP_TRY(const Values weights, recurrence(direction));
  ValueId state;
  if (inputs_.size() > 5 && inputs_[5].valid()) {
    GP_TRY(const ValueId first, row_of(5, direction));
    GP_TRY(state, one("Unsqueeze", {first}, {{"axes", std::vector<int64_t>{0}}}));
  }
  Values all(count);
  for (size_t place = 0; place < count; ++place) {
    const size_t t = backward ? count - 1 - place : place;
    GP_TRY(state, next_state(parts[t], state, weights));
    all[t] = state;
  }
  return all;
}

Status Unrolling::run() {
  const Shape x = context_.type(0).shape, w = context_.type(1).shape, r = context_.type(2).shape;
  const int64_t directions = directions_of(context_);
  const bool sized = x.size() == 3 && w.size() == 3 && r.size() == 3 && x[0].is_fixed() && x[0].factor >= 1 &&
                     x[0].factor <= kMaxSteps && r[2].is_fixed() && r[2].factor >= 1 && r[2].factor < (1 << 30);
  const Dim all_gates = sized ? Dim::fixed(gates_ * r[2].factor) : Dim();
  const bool fits = sized && w == Shape{Dim::fixed(directions), all_gates, x[2]} &&
                    r == Shape{Dim::fixed(directions), all_gates, r[2]};
  if (!fits)
    return context_.problem(Code::kBadModel, "its input, of at most 4096 steps, and its weights do not fit together",
                            "export the model again");
  steps_ = x[0], rows_ = x[1], hidden_ = r[2];
  const bool reverse = context_.string_attribute("direction", "forward") == "reverse";
  Values outputs, last;
  for (int64_t d = 0; d < directions; ++d) {
    const bool backward = reverse || d == 1;
    GP_TRY(const Values all, states(d, backward));
    GP_TRY(const ValueId joined, one("Concat", all, {{"axis", int64_t{0}}}));
    GP_TRY(const ValueId apart, one("Unsqueeze", {joined}, {{"axes", std::vector<int64_t>{1}}}));
    outputs.push_back(apart);
    last.push_back(backward ? all.front() : all.back());
  }
  if (directions == 2) {
    GP_TRY(outputs[0], one("Concat", outputs, {{"axis", int64_t{1}}}));
    GP_TRY(last[0], one("Concat", last, {{"axis", int64_t{0}}}));
  }
  if (context_.has_output(0)) context_.bind(0, outputs[0]);
  if (context_.has_output(1)) context_.bind(1, last[0]);
  return Ok{};
}

Status lower_gated(NodeContext& context) {
  GP_TRY_VOID(check_form(context));
  const bool lstm = context.node().op == "LSTM";
  const std::vector<std::string_view> expected = lstm ? std::vector<std::string_view>{"Sigmoid", "Tanh", "Tanh"}
                                                      : std::vector<std::string_view>{"Sigmoid", "Tanh"};
  if (!are_default(context.strings_attribute("activations"), expected))
    return no_such_form(context, "the form with other activations");
  if (lstm && context.int_attribute("input_forget", 0) != 0) return no_such_form(context, "the form with input_forget");
  if (lstm && context.has_input(7)) return no_such_form(context, "the form with peepholes");
  GP_TRY(Values inputs, operands(context, lstm ? 2 : 1));
  if (!lstm && context.int_attribute("linear_before_reset", 0) == 0)
    return Unrolling(context, std::move(inputs), {}).run();
  ir::Attributes attributes{{"direction", context.string_attribute("direction", "forward")},
                            {"hidden_size", context.int_attribute("hidden_size", 0)}};
  if (!lstm) attributes.set("linear_before_reset", int64_t{1});
  GP_TRY(const Values results, context.emit(context.node().op, std::move(inputs), attributes, lstm ? 5 : 3));
  for (size_t i = 0; i < (lstm ? 3U : 2U); ++i)
    if (context.has_output(i)) context.bind(i, results[i]);
  return Ok{};
}

Status lower_rnn(NodeContext& context) {
  GP_TRY_VOID(check_form(context));
  const std::vector<std::string> given = context.strings_attribute("activations");
  const bool relu = !given.empty() && are_default(given, {"Relu"});
  if (!relu && !are_default(given, {"Tanh"})) return no_such_form(context, "an activation other than Tanh and Relu");
  GP_TRY(Values inputs, operands(context, 1));
  return Unrolling(context, std::move(inputs), relu ? "Relu" : "Tanh").run();
}

}  // namespace

std::vector<HandlerEntry> recurrent_handlers() {
  return {{"LSTM", lower_gated}, {"GRU", lower_gated}, {"RNN", lower_rnn}};
}

}  // namespace graphpipe::frontend
