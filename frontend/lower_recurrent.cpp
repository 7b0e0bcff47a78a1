// LSTM and GRU in the forms that have entries; RNN, GRU with linear_before_reset = 0, LSTM with peepholes and sequences
// of different lengths are unrolled into their steps. Operands and results whose first axis is the batch (layout 1) are
// transposed.

#include <algorithm>
#include <array>
#include <cctype>

#include "frontend/exported_call.h"
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
                         "use torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN as they are");
}

int64_t directions_of(const NodeContext& context) {
  return context.string_attribute("direction", "forward") == "bidirectional" ? 2 : 1;
}

/// ONNX compares names of activations case-insensitively.
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

/// x and y [B, T, ..] and states [B, D, H] rather than [T, B, ..] and [D, B, H].
bool has_batch_first(const NodeContext& context) { return context.int_attribute("layout", 0) == 1; }

/// Swaps the first two axes.
Result<ValueId> with_swapped_axes(NodeContext& context, ValueId value) {
  GP_TRY(const Values made, context.emit("Transpose", {value}, {{"perm", std::vector<int64_t>{1, 0, 2}}}));
  return made[0];
}

/// Lengths that only repeat what the shape says.
bool are_full_lengths(NodeContext& context, size_t input) {
  const Known* known = context.known(input);
  if (known == nullptr || known->elements.empty() || context.rank(0) != 3) return false;
  const Number steps = Number::of_dim(context.type(0).shape[has_batch_first(context) ? 1 : 0]);
  return std::all_of(known->elements.begin(), known->elements.end(), [&](const Number& n) { return n == steps; });
}

/// An initial state of zeros counts as absent, unless it is a tensor of the file that may be trained: one for each
/// sample of the traced batch is not.
Result<ValueId> state_value(NodeContext& context, size_t input) {
  if (!context.has_input(input)) return ValueId();
  const Known* known = context.known(input);
  const auto is_zero = [](const Number& number) { return number.factor() == 0; };
  if (known == nullptr || known->elements.empty() ||
      !std::all_of(known->elements.begin(), known->elements.end(), is_zero))
    return context.value(input);
  const int64_t traced = context.lowering().traced_batch();
  const size_t axis = has_batch_first(context) ? 0 : 1;
  const bool of_samples =
      input < 7 && traced > 0 && known->shape.size() == 3 && known->shape[axis] == Dim::fixed(traced);
  if (context.input(input).leaf && !of_samples) return context.value(input);
  return ValueId();
}

/// x, w, r, the bias or none, the sequence lengths if they differ, the initial states or none, an LSTM's peepholes or
/// none; trailing absent ones are dropped. In layout 0.
Result<Values> operands(NodeContext& context, size_t states) {
  Values inputs;
  for (size_t i = 0; i < 4; ++i) {
    GP_TRY(const ValueId value, context.value(i));
    inputs.push_back(value);
  }
  inputs.emplace_back();
  if (context.has_input(4) && !are_full_lengths(context, 4)) {
    GP_TRY(const ValueId lengths, context.value(4));
    GP_TRY(const Values whole, context.emit("Cast", {lengths}, {{"to", std::string("i64")}}));
    inputs[4] = whole[0];
  }
  for (size_t i = 0; i < states; ++i) {
    GP_TRY(const ValueId state, state_value(context, 5 + i));
    inputs.push_back(state);
  }
  if (states == 2) {
    GP_TRY(const ValueId peepholes, state_value(context, 7));
    inputs.push_back(peepholes);
  }
  for (const size_t i : {0, 5, 6}) {
    if (!has_batch_first(context) || i >= 5 + states || !inputs[i].valid()) continue;
    if (context.rank(i) != 3) return context.problem(Code::kBadModel, "needs operands of rank 3", "export it again");
    GP_TRY(inputs[i], with_swapped_axes(context, inputs[i]));
  }
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  return inputs;
}

/// Whether the node is of torch.nn.LSTM(proj_size=...), for whose further weights ONNX has no place: the exporter of
/// PyTorch leaves them out, and cuts the others as if the state had the size of its projection.
bool has_lost_projection(const NodeContext& context) {
  const std::optional<ExportedCall> call = parse_exported_call(context.node().exported_from);
  if (!call || !call->target.starts_with("aten.lstm.")) return false;
  const int64_t weights = std::ranges::count(call->argument(2), '%');
  const int64_t each = call->argument(3) == "True" ? 4 : 2, directions = call->argument(7) == "True" ? 2 : 1;
  int64_t layers = 0;
  return read_number(call->argument(4), layers) && layers > 0 && layers <= weights &&
         weights > layers * directions * each;
}

Status check_form(NodeContext& context) {
  for (size_t i = 0; i < 3; ++i)
    if (!context.has_input(i)) return context.problem(Code::kBadModel, "lacks x or weights", "export the model again");
  if (context.node().find("clip") != nullptr) return no_such_form(context, "the form with clip");
  if (has_lost_projection(context))
    return context.problem(Code::kLostByExport,
                           "the module projects its hidden state (proj_size), which the file leaves out: it computes "
                           "something else",
                           "use torch.nn.LSTM without proj_size, for example with a torch.nn.Linear behind it");
  return Ok{};
}

/// Results in layout 0: y [T, D, B, H], then states [D, B, H].
Status bind_results(NodeContext& context, Values results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!context.has_output(i)) continue;
    if (has_batch_first(context) && i == 0) {
      GP_TRY(const Values y, context.emit("Transpose", {results[0]}, {{"perm", std::vector<int64_t>{2, 0, 1, 3}}}));
      results[0] = y[0];
    } else if (has_batch_first(context)) {
      GP_TRY(results[i], with_swapped_axes(context, results[i]));
    }
    context.bind(i, results[i]);
  }
  return Ok{};
}

/// kLinearGru: the reset gate multiplies the product with the state, not the state itself (linear_before_reset).
enum class Cell : uint8_t { kPlain, kGru, kLinearGru, kLstm };

int64_t gates_of(Cell cell) { return cell == Cell::kPlain ? 1 : cell == Cell::kLstm ? 4 : 3; }

/// One RNN, GRU or LSTM while it is unrolled. Sizes as in runtime/recurrent.h: x [T, B, I], w [D, G * H, I], r [D, G *
/// H, H], bias [D, 2 * G * H], with G = 1, or the gates z, r, h of a GRU or i, o, f, c of an LSTM, whose peepholes are
/// [D, 3 * H] of i, o, f.
class Unrolling {
 public:
  /// `activation`: the op of an RNN.
  Unrolling(NodeContext& context, Values inputs, Cell cell, std::string activation = {})
      : context_(context),
        inputs_(std::move(inputs)),
        cell_(cell),
        activation_(std::move(activation)),
        gates_(gates_of(cell)) {
    inputs_.resize(8);
  }

  Status run();

 private:
  /// What one step passes to the next; invalid if it is zero.
  struct State {
    ValueId hidden, cell;
  };
  /// All hidden states in time order, and the last state.
  struct Track {
    Values all;
    State last;
  };

  Result<ValueId> row_of(size_t input, int64_t direction);
  Result<ValueId> products(int64_t direction);
  Result<State> first_state(int64_t direction);
  Result<Values> step_masks();
  Result<ValueId> kept(ValueId mask, ValueId value, ValueId otherwise);
  Result<Track> states(int64_t direction, bool backward);
  Result<Values> recurrence(int64_t direction);
  Result<Values> gate_parts(ValueId list);
  Result<ValueId> reset_state(ValueId reset, ValueId state, const Values& recurrence);
  Result<Values> peepholes(int64_t direction);
  Result<State> next_state(ValueId sum, const State& state, const Values& recurrence, const Values& peepholes);
  Result<ValueId> next_gated(ValueId sum, ValueId state, const Values& recurrence);
  Result<State> next_cell(ValueId sum, const State& state, const Values& peepholes);
  Result<ValueId> gate(ValueId sum, ValueId cell, ValueId peephole);

  NodeContext& context_;
  Values inputs_;
  Cell cell_;
  std::string activation_;
  int64_t gates_;
  Dim steps_, rows_, hidden_;
};

/// Row `direction` of an operand, with that axis removed.
Result<ValueId> Unrolling::row_of(size_t input, int64_t direction) {
  GP_TRY(const ValueId row, context_.emit_slice(inputs_[input], 0, direction, direction + 1));
  return context_.emit_one("Squeeze", {row}, {{"axes", std::vector<int64_t>{0}}});
}

/// The contribution of the inputs and both biases to every step: [T, B, G * H].
Result<ValueId> Unrolling::products(int64_t direction) {
  const ir::Attributes swap{{"perm", std::vector<int64_t>{1, 0}}};
  GP_TRY(const ValueId w, row_of(1, direction));
  GP_TRY(const ValueId turned, context_.emit_one("Transpose", {w}, swap));
  GP_TRY(ValueId sums, context_.emit_one("MatMul", {inputs_[0], turned}));
  if (!inputs_[3].valid()) return sums;
  GP_TRY(const ValueId both, row_of(3, direction));
  const std::vector<int64_t> sizes(2, gates_ * hidden_.factor);
  GP_TRY(const Values halves, context_.emit("Split", {both}, {{"axis", int64_t{0}}, {"sizes", sizes}}, 2));
  GP_TRY(sums, context_.emit_one("Add", {sums, halves[0]}));
  ValueId recurrent = halves[1];
  if (cell_ == Cell::kLinearGru) {
    // The recurrent bias of the candidate belongs to the product with the state.
    GP_TRY(const Values parts, gate_parts(recurrent));
    GP_TRY(const ValueId nothing, context_.emit_one("Sub", {parts[1], parts[1]}));
    GP_TRY(recurrent, context_.emit_one("Concat", {parts[0], nothing}, {{"axis", int64_t{0}}}));
  }
  return context_.emit_one("Add", {sums, recurrent});
}

/// The rows of z and r, and those of h, of a GRU's [3 * H].
Result<Values> Unrolling::gate_parts(ValueId list) {
  const std::vector<int64_t> sizes{2 * hidden_.factor, hidden_.factor};
  return context_.emit("Split", {list}, {{"axis", int64_t{0}}, {"sizes", sizes}}, 2);
}

/// The recurrent weights that a state is multiplied by: [H, H], or [H, 2 * H] of z and r and [H, H] of h, and the bias
/// that a linear GRU adds to the latter product.
Result<Values> Unrolling::recurrence(int64_t direction) {
  GP_TRY(const ValueId r, row_of(2, direction));
  GP_TRY(const ValueId turned, context_.emit_one("Transpose", {r}, {{"perm", std::vector<int64_t>{1, 0}}}));
  if (gates_ != 3) return Values{turned};
  const std::vector<int64_t> sizes{2 * hidden_.factor, hidden_.factor};
  GP_TRY(Values weights, context_.emit("Split", {turned}, {{"axis", int64_t{1}}, {"sizes", sizes}}, 2));
  if (cell_ == Cell::kLinearGru && inputs_[3].valid()) {
    GP_TRY(const ValueId both, row_of(3, direction));
    const std::vector<int64_t> halves(2, gates_ * hidden_.factor);
    GP_TRY(const Values biases, context_.emit("Split", {both}, {{"axis", int64_t{0}}, {"sizes", halves}}, 2));
    GP_TRY(const Values parts, gate_parts(biases[1]));
    weights.push_back(parts[1]);
  }
  return weights;
}

/// (r * state) * R, or for a linear GRU r * (state * R + bias); none if it is zero.
Result<ValueId> Unrolling::reset_state(ValueId reset, ValueId state, const Values& recurrence) {
  if (cell_ == Cell::kGru) {
    if (!state.valid()) return state;
    GP_TRY(const ValueId seen, context_.emit_one("Mul", {reset, state}));
    return context_.emit_one("MatMul", {seen, recurrence[1]});
  }
  ValueId product;
  if (state.valid()) {
    GP_TRY(product, context_.emit_one("MatMul", {state, recurrence[1]}));
  }
  if (recurrence.size() > 2 && product.valid()) {
    GP_TRY(product, context_.emit_one("Add", {product, recurrence[2]}));
  } else if (recurrence.size() > 2) {
    product = recurrence[2];
  }
  if (!product.valid()) return product;
  return context_.emit_one("Mul", {reset, product});
}

/// z, r = sigmoid(sum + state * R), h = tanh(sum + reset_state); the next state is h + z * (state - h). An invalid
/// state is zero.
Result<ValueId> Unrolling::next_gated(ValueId sum, ValueId state, const Values& recurrence) {
  const std::vector<int64_t> two{2 * hidden_.factor, hidden_.factor}, each(2, hidden_.factor);
  GP_TRY(const Values sums, context_.emit("Split", {sum}, {{"axis", int64_t{2}}, {"sizes", two}}, 2));
  ValueId gates = sums[0], candidate = sums[1];
  if (state.valid()) {
    GP_TRY(const ValueId recurrent, context_.emit_one("MatMul", {state, recurrence[0]}));
    GP_TRY(gates, context_.emit_one("Add", {gates, recurrent}));
  }
  GP_TRY(gates, context_.emit_one("Sigmoid", {gates}));
  GP_TRY(const Values apart, context_.emit("Split", {gates}, {{"axis", int64_t{2}}, {"sizes", each}}, 2));
  GP_TRY(const ValueId recurrent, reset_state(apart[1], state, recurrence));
  if (recurrent.valid()) {
    GP_TRY(candidate, context_.emit_one("Add", {candidate, recurrent}));
  }
  GP_TRY(candidate, context_.emit_one("Tanh", {candidate}));
  GP_TRY(ValueId difference,
         state.valid() ? context_.emit_one("Sub", {state, candidate}) : context_.emit_one("Neg", {candidate}));
  GP_TRY(difference, context_.emit_one("Mul", {apart[0], difference}));
  return context_.emit_one("Add", {candidate, difference});
}

/// sigmoid(sum + cell * peephole)
Result<ValueId> Unrolling::gate(ValueId sum, ValueId cell, ValueId peephole) {
  if (cell.valid() && peephole.valid()) {
    GP_TRY(const ValueId seen, context_.emit_one("Mul", {cell, peephole}));
    GP_TRY(sum, context_.emit_one("Add", {sum, seen}));
  }
  return context_.emit_one("Sigmoid", {sum});
}

/// i and f see the previous cell, o the new one: f * cell + i * tanh(c); the next hidden state is o * tanh(cell).
Result<Unrolling::State> Unrolling::next_cell(ValueId sum, const State& state, const Values& peepholes) {
  const std::vector<int64_t> sizes(4, hidden_.factor);
  GP_TRY(const Values sums, context_.emit("Split", {sum}, {{"axis", int64_t{2}}, {"sizes", sizes}}, 4));
  const auto peephole = [&](size_t i) { return peepholes.empty() ? ValueId() : peepholes[i]; };
  GP_TRY(const ValueId input, gate(sums[0], state.cell, peephole(0)));
  GP_TRY(const ValueId candidate, context_.emit_one("Tanh", {sums[3]}));
  State next;
  GP_TRY(next.cell, context_.emit_one("Mul", {input, candidate}));
  if (state.cell.valid()) {
    GP_TRY(const ValueId forget, gate(sums[2], state.cell, peephole(2)));
    GP_TRY(const ValueId kept, context_.emit_one("Mul", {forget, state.cell}));
    GP_TRY(next.cell, context_.emit_one("Add", {kept, next.cell}));
  }
  GP_TRY(const ValueId output, gate(sums[1], next.cell, peephole(1)));
  GP_TRY(const ValueId bounded, context_.emit_one("Tanh", {next.cell}));
  GP_TRY(next.hidden, context_.emit_one("Mul", {output, bounded}));
  return next;
}

Result<Unrolling::State> Unrolling::next_state(ValueId sum, const State& state, const Values& recurrence,
                                               const Values& peepholes) {
  if (gates_ == 3) {
    GP_TRY(const ValueId hidden, next_gated(sum, state.hidden, recurrence));
    return State{.hidden = hidden, .cell = {}};
  }
  if (state.hidden.valid()) {
    GP_TRY(const ValueId recurrent, context_.emit_one("MatMul", {state.hidden, recurrence[0]}));
    GP_TRY(sum, context_.emit_one("Add", {sum, recurrent}));
  }
  if (cell_ == Cell::kLstm) return next_cell(sum, state, peepholes);
  GP_TRY(const ValueId hidden, context_.emit_one(activation_, {sum}));
  return State{.hidden = hidden, .cell = {}};
}

/// The peepholes of i, o and f, [H] each; none if the node has none.
Result<Values> Unrolling::peepholes(int64_t direction) {
  if (!inputs_[7].valid()) return Values{};
  GP_TRY(const ValueId row, row_of(7, direction));
  return context_.emit("Split", {row}, {{"axis", int64_t{0}}, {"sizes", std::vector<int64_t>(3, hidden_.factor)}}, 3);
}

Result<Unrolling::State> Unrolling::first_state(int64_t direction) {
  State state;
  for (const size_t input : {5, 6}) {
    if (!inputs_[input].valid()) continue;
    GP_TRY(const ValueId first, row_of(input, direction));
    GP_TRY((input == 5 ? state.hidden : state.cell),
           context_.emit_one("Unsqueeze", {first}, {{"axes", std::vector<int64_t>{0}}}));
  }
  return state;
}

/// Whether each step is within its sequence, [1, B, 1]; none if all sequences have full length.
Result<Values> Unrolling::step_masks() {
  if (!inputs_[4].valid()) return Values{};
  GP_TRY(const ValueId lengths,
         context_.emit_one("Reshape", {inputs_[4]}, {{"shape", Shape{Dim::fixed(1), rows_, Dim::fixed(1)}}}));
  Values masks;
  for (int64_t t = 0; t < steps_.factor; ++t) {
    GP_TRY(const ValueId step, context_.scalar(static_cast<double>(t), ir::DType::kInt64));
    GP_TRY(const ValueId mask, context_.emit_one("Less", {step, lengths}));
    masks.push_back(mask);
  }
  return masks;
}

/// `value` where the mask holds, elsewhere `otherwise`; an invalid value is zero.
Result<ValueId> Unrolling::kept(ValueId mask, ValueId value, ValueId otherwise) {
  if (!value.valid()) return value;
  if (!otherwise.valid()) {
    const ir::DType dtype = context_.lowering().graph().value(value).type.dtype;
    GP_TRY(otherwise, context_.scalar(0, dtype));
  }
  return context_.emit_one("Where", {mask, value, otherwise});
}

/// The states [1, B, H] after each step. After the end of a sequence its states stay and its results are zero; read
/// backward, it begins at its end.
Result<Unrolling::Track> Unrolling::states(int64_t direction, bool backward) {
  const auto count = static_cast<size_t>(steps_.factor);
  GP_TRY(const ValueId sums, products(direction));
  const std::vector<int64_t> sizes(count, 1);
  GP_TRY(const Values parts, context_.emit("Split", {sums}, {{"axis", int64_t{0}}, {"sizes", sizes}}, count));
  GP_TRY(const Values weights, recurrence(direction));
  GP_TRY(const Values seen, peepholes(direction));
  GP_TRY(const Values masks, step_masks());
  Track track{.all = Values(count), .last = {}};
  GP_TRY(track.last, first_state(direction));
  for (size_t place = 0; place < count; ++place) {
    const size_t t = backward ? count - 1 - place : place;
    GP_TRY(State next, next_state(parts[t], track.last, weights, seen));
    track.all[t] = next.hidden;
    if (!masks.empty()) {
      GP_TRY(track.all[t], kept(masks[t], next.hidden, {}));
      GP_TRY(next.hidden, kept(masks[t], next.hidden, track.last.hidden));
      GP_TRY(next.cell, kept(masks[t], next.cell, track.last.cell));
    }
    track.last = next;
  }
  return track;
}

Status Unrolling::run() {
  const Shape x = context_.lowering().graph().value(inputs_[0]).type.shape, w = context_.type(1).shape,
              r = context_.type(2).shape;
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
  if (inputs_[4].valid() && context_.type(4).shape != Shape{rows_})
    return context_.problem(Code::kBadModel, "needs one length for each sequence", "export the model again");
  // A gate takes four nodes per step.
  if (!context_.lowering().may_unroll(directions * steps_.factor * 4 * gates_))
    return context_.problem(
        Code::kLimitExceeded,
        text("its ", steps_.factor, " steps, with what else is unrolled, have more than ",
             context_.limits().unrolled_nodes, " nodes"),
        "use fewer steps, or a form with a kernel: LSTM without peepholes, GRU with linear_before_reset = 1, all "
        "sequences of one length");
  const bool reverse = context_.string_attribute("direction", "forward") == "reverse";
  // y, the last hidden state and the last cell, of each direction.
  std::array<Values, 3> results;
  for (int64_t d = 0; d < directions; ++d) {
    GP_TRY(const Track track, states(d, reverse || d == 1));
    GP_TRY(const ValueId joined, context_.emit_one("Concat", track.all, {{"axis", int64_t{0}}}));
    GP_TRY(const ValueId apart, context_.emit_one("Unsqueeze", {joined}, {{"axes", std::vector<int64_t>{1}}}));
    results[0].push_back(apart);
    results[1].push_back(track.last.hidden);
    results[2].push_back(track.last.cell);
  }
  Values bound;
  for (size_t i = 0; i < (cell_ == Cell::kLstm ? 3U : 2U); ++i) {
    bound.push_back(results[i][0]);
    if (directions == 1) continue;
    GP_TRY(bound[i], context_.emit_one("Concat", results[i], {{"axis", int64_t{i == 0 ? 1 : 0}}}));
  }
  return bind_results(context_, std::move(bound));
}

Status lower_gated(NodeContext& context) {
  GP_TRY_VOID(check_form(context));
  const bool lstm = context.node().op == "LSTM";
  const std::vector<std::string_view> expected = lstm ? std::vector<std::string_view>{"Sigmoid", "Tanh", "Tanh"}
                                                      : std::vector<std::string_view>{"Sigmoid", "Tanh"};
  if (!are_default(context.strings_attribute("activations"), expected))
    return no_such_form(context, "the form with other activations");
  if (lstm && context.int_attribute("input_forget", 0) != 0) return no_such_form(context, "the form with input_forget");
  GP_TRY(Values inputs, operands(context, lstm ? 2 : 1));
  if (!lstm && context.int_attribute("linear_before_reset", 0) == 0)
    return Unrolling(context, std::move(inputs), Cell::kGru).run();
  const bool differ = inputs.size() > 4 && inputs[4].valid();
  if (!lstm && differ) return Unrolling(context, std::move(inputs), Cell::kLinearGru).run();
  if (inputs.size() > 7 || differ) return Unrolling(context, std::move(inputs), Cell::kLstm).run();
  ir::Attributes attributes{{"direction", context.string_attribute("direction", "forward")},
                            {"hidden_size", context.int_attribute("hidden_size", 0)}};
  if (!lstm) attributes.set("linear_before_reset", int64_t{1});
  GP_TRY(const Values results, context.emit(context.node().op, std::move(inputs), attributes, lstm ? 5 : 3));
  return bind_results(context, {results.begin(), results.begin() + (lstm ? 3 : 2)});
}

Status lower_rnn(NodeContext& context) {
  GP_TRY_VOID(check_form(context));
  const std::vector<std::string> given = context.strings_attribute("activations");
  const bool relu = !given.empty() && are_default(given, {"Relu"});
  if (!relu && !are_default(given, {"Tanh"})) return no_such_form(context, "an activation other than Tanh and Relu");
  GP_TRY(Values inputs, operands(context, 1));
  return Unrolling(context, std::move(inputs), Cell::kPlain, relu ? "Relu" : "Tanh").run();
}

}  // namespace

std::vector<HandlerEntry> recurrent_handlers() {
  return {{"LSTM", lower_gated}, {"GRU", lower_gated}, {"RNN", lower_rnn}};
}

}  // namespace graphpipe::frontend
