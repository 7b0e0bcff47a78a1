// nn.EmbeddingBag. Both exporters of torch write it as a Loop over bags: iteration i takes rows offsets[i] to offsets[i
// + 1] of the flattened indices (or of the rows looked up for them) and reduces them. If all bags have the same length,
// the offsets being 0, L, 2 L, ..., the loop is one reduction over an axis of length L, for all bags at once.

#include <algorithm>
#include <map>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::Shape;
using ir::ValueId;

/// index * i + one + count * n, where i is the iteration and n the number of iterations.
struct Affine {
  int64_t index = 0, one = 0, count = 0;
  bool operator==(const Affine&) const = default;
  /// Sums of a few of them do not overflow.
  bool is_small() const {
    const auto small = [](int64_t number) { return number > -kMaxNumber && number < kMaxNumber; };
    return small(index) && small(one) && small(count);
  }
  static constexpr int64_t kMaxNumber = int64_t{1} << 48;
};

/// The meaning of a name in the body.
struct LoopValue {
  enum class Kind : uint8_t {
    kNumber,  // an integer
    kTruth,   // the same in every iteration
    kIsLast,  // whether this is the last iteration
    kRows,    // a tensor per iteration, all of them stacked in front: [n, ...]
    kBags,    // the sequence of results so far
    kGoesOn,  // whether another iteration follows
  };
  Kind kind = Kind::kNumber;
  Affine number;
  bool truth = false;
  ValueId rows;
};

class BagLoop {
 public:
  explicit BagLoop(NodeContext& context) : context_(context), lowering_(context.lowering()) {}
  Status run();

 private:
  using Kind = LoopValue::Kind;

  Diagnostic refuse() const {
    return context_.problem(
        Code::kUnsupportedOp,
        "a loop other than that of an nn.EmbeddingBag with bags of one length and without padding_idx",
        "write nn.EmbeddingBag as nn.Embedding(...)(ids).sum(1), which takes a padding_idx, and "
        "unroll other loops");
  }
  Result<Dim> iterations(const GraphBody& body);
  Status bind_inputs(const GraphBody& body);
  Status bind_outputs(const GraphBody& body);
  Status steps(const std::vector<OnnxNode>& nodes);
  Status step(const OnnxNode& node);
  Status invariant(const OnnxNode& node);
  Status branch(const OnnxNode& node);
  Status compare(const OnnxNode& node);
  Status take(const OnnxNode& node);
  Status slice(const OnnxNode& node);
  Status reduce(const OnnxNode& node);
  Status pass_on(const OnnxNode& node);
  Status add(const OnnxNode& node);
  Status append(const OnnxNode& node);

  bool is_local(const std::string& name) const { return locals_.count(name) > 0; }
  /// The binding from outside the loop; null for names of the body and if an error was reported.
  Binding* outer(const std::string& name);
  const LoopValue* local(const std::string& name, Kind kind) const;
  std::optional<Affine> number(const std::string& name);
  std::optional<std::vector<int64_t>> constants(const std::string& name);
  const Shape& shape(ValueId value) const { return lowering_.graph().value(value).type.shape; }
  Status set_rows(const OnnxNode& node, std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes);
  void set(const OnnxNode& node, LoopValue value) { locals_[node.outputs[0]] = value; }

  NodeContext& context_;
  Lowering& lowering_;
  std::map<std::string, LoopValue> locals_;
  /// The length of the bags, from the offsets that the body reads, and the number of iterations.
  int64_t length_ = 0;
  Dim count_;
};

const LoopValue* BagLoop::local(const std::string& name, Kind kind) const {
  const auto found = locals_.find(name);
  return found != locals_.end() && found->second.kind == kind ? &found->second : nullptr;
}

Binding* BagLoop::outer(const std::string& name) {
  Binding* found = is_local(name) ? nullptr : lowering_.find(name);
  return found == nullptr || found->poisoned ? nullptr : found;
}

std::optional<Affine> BagLoop::number(const std::string& name) {
  if (const LoopValue* value = local(name, Kind::kNumber)) return value->number;
  const Binding* bound = outer(name);
  if (bound == nullptr || !bound->known || bound->known->elements.size() != 1) return std::nullopt;
  const Number& found = bound->known->elements[0];
  Affine result{0, found.whole, 0};
  if (!found.is_fixed()) {
    if (found.power != count_.power || found.whole % count_.factor != 0) return std::nullopt;
    result = {0, 0, found.whole / count_.factor};
  }
  return found.floating || !result.is_small() ? std::nullopt : std::optional(result);
}

std::optional<std::vector<int64_t>> BagLoop::constants(const std::string& name) {
  const Binding* bound = outer(name);
  return bound != nullptr && bound->known ? whole_numbers(*bound->known) : std::nullopt;
}

/// The number of iterations: the loop's own limit, or the number of bags that its condition names.
Result<Dim> BagLoop::iterations(const GraphBody& body) {
  std::vector<std::string> names;
  if (context_.has_input(0)) names.push_back(context_.node().inputs[0]);
  for (const OnnxNode& node : body.nodes)
    if (node.op == "Less" && node.inputs.size() == 2) names.push_back(node.inputs[1]);
  for (const std::string& name : names) {
    const Binding* limit = outer(name);
    if (limit == nullptr || !limit->known || limit->known->elements.size() != 1) continue;
    const Number& count = limit->known->elements[0];
    if (!count.floating && count.power == 1 && count.whole > 0 && count.whole < Affine::kMaxNumber)
      return Dim{count.whole, count.power};
  }
  return refuse();
}

/// The body's inputs: the iteration, the condition, then what is carried: a counter from 0, or the results so far.
Status BagLoop::bind_inputs(const GraphBody& body) {
  const std::vector<std::string>& given = context_.node().inputs;
  if (body.inputs.size() < 2 || body.inputs.size() != given.size()) return refuse();
  locals_[body.inputs[0].name] = {.kind = Kind::kNumber, .number = {1, 0, 0}};
  locals_[body.inputs[1].name] = {.kind = Kind::kGoesOn};
  for (size_t i = 2; i < given.size(); ++i) {
    const Binding* first = outer(given[i]);
    const bool counts = first != nullptr && first->known && first->known->elements.size() == 1 &&
                        first->known->elements[0] == Number::of_whole(0);
    if (counts) locals_[body.inputs[i].name] = {.kind = Kind::kNumber, .number = {1, 0, 0}};
    else if (first != nullptr && first->is_empty_sequence) locals_[body.inputs[i].name] = {.kind = Kind::kBags};
    else return refuse();
  }
  return Ok{};
}

/// The body's outputs: the condition, what is carried on, then what is stacked.
Status BagLoop::bind_outputs(const GraphBody& body) {
  const size_t carried = context_.node().inputs.size() - 2;
  if (body.outputs.size() != context_.node().outputs.size() + 1 || body.outputs.size() < carried + 1) return refuse();
  const std::string& condition = body.outputs[0].name;
  const Binding* fixed = outer(condition);
  const bool always = fixed != nullptr && fixed->known && fixed->known->uniform && fixed->known->elements[0].whole == 1;
  if (!always && local(condition, Kind::kGoesOn) == nullptr) return refuse();
  // Without a limit of its own the loop ends by its condition.
  if (always && !context_.has_input(0)) return refuse();
  for (size_t i = 0; i < context_.node().outputs.size(); ++i) {
    const std::string& inner = body.outputs[i + 1].name;
    Binding binding;
    if (i >= carried) {
      const LoopValue* rows = local(inner, Kind::kRows);
      if (rows == nullptr) return refuse();
      context_.bind(i, rows->rows);
      continue;
    }
    if (const LoopValue* bags = local(inner, Kind::kBags); bags != nullptr && bags->rows.valid()) {
      binding.stacked = bags->rows;
    } else if (const LoopValue* counter = local(inner, Kind::kNumber);
               counter != nullptr && counter->number == Affine{1, 1, 0}) {
      binding.known = Known::scalar(ir::DType::kInt64, Number::of_dim(count_));
      binding.type = {ir::DType::kInt64, {}};
    } else {
      return refuse();
    }
    if (context_.has_output(i)) lowering_.bind(context_.node().outputs[i], std::move(binding));
  }
  return Ok{};
}

Status BagLoop::set_rows(const OnnxNode& node, std::string_view op, std::vector<ValueId> inputs,
                         ir::Attributes attributes) {
  GP_TRY(const std::vector<ValueId> made, context_.emit(op, std::move(inputs), std::move(attributes)));
  set(node, {.kind = Kind::kRows, .rows = made[0]});
  return Ok{};
}

/// A node that is loop-invariant is lowered once, before the loop.
Status BagLoop::invariant(const OnnxNode& node) {
  const size_t before = lowering_.problems().size();
  lowering_.run({node});
  if (lowering_.problems().size() == before) return Ok{};
  lowering_.problems().resize(before);
  return refuse();
}

Status BagLoop::branch(const OnnxNode& node) {
  const LoopValue* last = local(node.inputs[0], Kind::kIsLast);
  const LoopValue* truth = local(node.inputs[0], Kind::kTruth);
  const Binding* known = outer(node.inputs[0]);
  bool taken = false;
  // torch handles the last bag separately because it may end elsewhere; here it ends where the others do.
  if (last != nullptr && lowering_.from_torch()) taken = false;
  else if (truth != nullptr) taken = truth->truth;
  else if (known != nullptr && known->known && known->known->uniform) taken = known->known->elements[0].whole != 0;
  else return refuse();
  const Attribute* body = node.find(taken ? "then_branch" : "else_branch");
  if (body == nullptr || body->graph.empty() || body->graph[0].outputs.size() != node.outputs.size() ||
      !body->graph[0].initializers.empty())
    return refuse();
  GP_TRY_VOID(steps(body->graph[0].nodes));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string& inner = body->graph[0].outputs[i].name;
    if (is_local(inner)) locals_[node.outputs[i]] = locals_[inner];
    else if (outer(inner) != nullptr) lowering_.bind_alias(node.outputs[i], inner);
    else return refuse();
  }
  return Ok{};
}

/// Equal and Less of numbers: a truth, whether this is the last iteration, or whether another one follows.
Status BagLoop::compare(const OnnxNode& node) {
  const std::optional<Affine> a = number(node.inputs[0]), b = number(node.inputs[1]);
  if (!a || !b) return refuse();
  const Affine rest{a->index - b->index, a->one - b->one, a->count - b->count};
  const bool to_the_end = rest == Affine{1, 1, -1};
  if (node.op == "Less" && to_the_end) set(node, {.kind = Kind::kGoesOn});
  else if (node.op == "Equal" && to_the_end) set(node, {.kind = Kind::kIsLast});
  else if (node.op == "Equal" && rest.index == 0 && rest.count == 0)
    set(node, {.kind = Kind::kTruth, .truth = rest.one == 0});
  else return refuse();
  return Ok{};
}

/// Gather: an offset by its index, or rows of a table.
Status BagLoop::take(const OnnxNode& node) {
  const Attribute* axis = node.find("axis");
  if (axis != nullptr && axis->i != 0) return refuse();
  Binding* data = outer(node.inputs[0]);
  if (data == nullptr) return refuse();
  if (const LoopValue* rows = local(node.inputs[1], Kind::kRows)) {
    GP_TRY(const ValueId table, lowering_.value_of(*data, node));
    return set_rows(node, "Gather", {table, rows->rows}, {{"axis", int64_t{0}}});
  }
  const std::optional<Affine> at = number(node.inputs[1]);
  if (!at || !data->offsets || data->offsets->bags != count_) return refuse();
  const int64_t place = at->one + data->offsets->first;
  if (at->index != 1 || at->count != 0 || place < 0 || place > 1) return refuse();
  length_ = data->offsets->length;
  set(node, {.kind = Kind::kNumber, .number = {length_, place * length_, 0}});
  return Ok{};
}

/// One offset, or the rows of one bag.
Status BagLoop::slice(const OnnxNode& node) {
  const std::optional<Affine> from = number(node.inputs[1]), to = number(node.inputs[2]);
  Binding* data = outer(node.inputs[0]);
  const auto absent = [&](size_t i, int64_t meaning) {
    if (i >= node.inputs.size() || node.inputs[i].empty()) return true;
    return constants(node.inputs[i]) == std::vector<int64_t>{meaning};
  };
  if (!from || !to || data == nullptr || !absent(3, 0) || !absent(4, 1)) return refuse();
  if (data->offsets) {
    if (to->index != from->index || to->one != from->one + 1 || to->count != from->count) return refuse();
    OnnxNode single = node;
    single.inputs = {node.inputs[0], node.inputs[1]};
    return take(single);
  }
  const Shape all = data->type.shape;
  const bool one_bag = length_ > 0 && *from == Affine{length_, 0, 0} && *to == Affine{length_, length_, 0};
  int64_t rows = 0;
  if (!one_bag || __builtin_mul_overflow(count_.factor, length_, &rows)) return refuse();
  if (all.empty() || all[0] != Dim{rows, count_.power}) return refuse();
  GP_TRY(const ValueId whole, lowering_.value_of(*data, node));
  Shape apart = {count_, Dim::fixed(length_)};
  apart.insert(apart.end(), all.begin() + 1, all.end());
  return set_rows(node, "Reshape", {whole}, {{"shape", std::move(apart)}});
}

/// ReduceSum, ReduceMean and ReduceMax over the rows of each bag.
Status BagLoop::reduce(const OnnxNode& node) {
  const LoopValue* rows = local(node.inputs[0], Kind::kRows);
  std::optional<std::vector<int64_t>> axes;
  if (node.inputs.size() > 1) axes = constants(node.inputs[1]);
  else if (const Attribute* given = node.find("axes")) axes = given->ints;
  if (rows == nullptr || axes != std::vector<int64_t>{0}) return refuse();
  const Attribute* keeps = node.find("keepdims");
  return set_rows(node, node.op, {rows->rows},
                  {{"axes", std::vector<int64_t>{1}}, {"keepdims", keeps == nullptr ? int64_t{1} : keeps->i}});
}

/// Ops that do not change a number; rows keep their leading iteration axis.
Status BagLoop::pass_on(const OnnxNode& node) {
  const auto found = locals_.find(node.inputs[0]);
  if (found == locals_.end()) {  // a constant, cast to the type of a local
    if (node.op != "CastLike" || outer(node.inputs[0]) == nullptr) return refuse();
    lowering_.bind_alias(node.outputs[0], node.inputs[0]);
    return Ok{};
  }
  const LoopValue value = found->second;
  if (value.kind != Kind::kRows || node.op == "Identity") {
    set(node, value);
    return Ok{};
  }
  if (node.op != "Unsqueeze" || node.inputs.size() < 2) return refuse();
  std::optional<std::vector<int64_t>> axes = constants(node.inputs[1]);
  if (!axes || std::any_of(axes->begin(), axes->end(), [](int64_t axis) { return axis < 0 || axis > kMaxRank; }))
    return refuse();
  for (int64_t& axis : *axes) ++axis;
  return set_rows(node, "Unsqueeze", {value.rows}, {{"axes", std::move(*axes)}});
}

/// Add and Sub of integers.
Status BagLoop::add(const OnnxNode& node) {
  const std::optional<Affine> a = number(node.inputs[0]), b = number(node.inputs[1]);
  if (!a || !b) return refuse();
  const int64_t sign = node.op == "Add" ? 1 : -1;
  const Affine sum{a->index + sign * b->index, a->one + sign * b->one, a->count + sign * b->count};
  if (!sum.is_small()) return refuse();
  set(node, {.kind = Kind::kNumber, .number = sum});
  return Ok{};
}

Status BagLoop::append(const OnnxNode& node) {
  const LoopValue *bags = local(node.inputs[0], Kind::kBags), *rows = local(node.inputs[1], Kind::kRows);
  if (bags == nullptr || bags->rows.valid() || rows == nullptr || node.inputs.size() != 2) return refuse();
  set(node, {.kind = Kind::kBags, .rows = rows->rows});
  return Ok{};
}

Status BagLoop::step(const OnnxNode& node) {
  const std::string& op = node.op;
  if (node.outputs.empty() || !node.domain.empty()) return refuse();
  if (op == "If") return node.inputs.empty() ? Status(refuse()) : branch(node);
  if ((op == "Add" || op == "Sub") && node.inputs.size() == 2) return add(node);
  if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) { return is_local(name); }))
    return invariant(node);
  if (op == "Identity" || op == "CastLike" || op == "Reshape" || op == "Unsqueeze" || op == "Squeeze" || op == "Cast")
    return pass_on(node);
  if (node.inputs.size() < 2) return refuse();
  if (op == "Equal" || op == "Less") return compare(node);
  if (op == "Gather") return take(node);
  if (op == "Slice" && node.inputs.size() >= 3) return slice(node);
  if (op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax") return reduce(node);
  if (op == "SequenceInsert") return append(node);
  const LoopValue *left = local(node.inputs[0], Kind::kRows), *right = local(node.inputs[1], Kind::kRows);
  if (op == "Mul" && left != nullptr && right != nullptr && shape(left->rows).size() == shape(right->rows).size())
    return set_rows(node, "Mul", {left->rows, right->rows}, {});
  return refuse();
}

Status BagLoop::steps(const std::vector<OnnxNode>& nodes) {
  for (const OnnxNode& node : nodes) GP_TRY_VOID(step(node));
  return Ok{};
}

Status BagLoop::run() {
  const Attribute* attribute = context_.node().find("body");
  if (attribute == nullptr || attribute->graph.empty() || context_.node().inputs.size() < 2 ||
      !attribute->graph[0].initializers.empty())
    return refuse();
  const GraphBody& body = attribute->graph[0];
  GP_TRY(count_, iterations(body));
  GP_TRY_VOID(bind_inputs(body));
  GP_TRY_VOID(steps(body.nodes));
  return bind_outputs(body);
}

}  // namespace

Status lower_loop_over_bags(NodeContext& context) { return BagLoop(context).run(); }

}  // namespace graphpipe::frontend
