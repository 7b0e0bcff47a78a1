#include "passes/separate_look_ups.h"

#include <algorithm>

#include "ops/op_def.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {
namespace {

using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::Shape;
using ir::ValueId;

const Node* producer_of(const Graph& graph, ValueId value) {
  const ir::NodeId id = graph.value(value).producer;
  return id.valid() ? &graph.node(id) : nullptr;
}

/// A look-up that is being rewritten.
class LookUp {
 public:
  LookUp(const Rebuilding& step, AffineIndices& indices) : step_(step), made_(step.made), indices_(indices) {}

  Result<Replacement> gather();
  Result<Replacement> gather_nd();
  Result<Replacement> regions();

 private:
  Result<ValueId> append(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
    return append_like(made_, step_.node, op, std::move(inputs), std::move(attributes));
  }
  Result<ValueId> reshape(ValueId value, Shape shape);
  bool counts_samples(ValueId index, int64_t stride);
  bool counts_all(const AffineIndex& index, const Shape& shape, Dim all) const;
  bool is_within(ValueId index, int64_t size);
  Result<Replacement> as_reshape(const Shape& index, const AffineIndex& formula);
  Result<Replacement> per_sample(ValueId data, ValueId index);
  Result<Replacement> each_sample(ValueId index);
  ValueId first_column(const Node& node);
  bool numbers_samples(ValueId number);

  const Rebuilding& step_;
  Graph& made_;
  AffineIndices& indices_;
};

/// Reshapes the value or, if that is a reshape itself, its input: data need not be flattened for the look-up first.
Result<ValueId> LookUp::reshape(ValueId value, Shape shape) {
  const Node* producer = producer_of(made_, value);
  if (producer != nullptr && ops::dependence_of(producer->op) == ops::Dependence::kSameOrder)
    value = producer->inputs[0];
  if (shape_of(made_, value) == shape) return value;
  return append("Reshape", {value}, {{"shape", std::move(shape)}});
}

/// Whether the index has the batch as its first axis and is `stride` * b for all elements of sample b.
bool LookUp::counts_samples(ValueId index, int64_t stride) {
  const Shape& shape = shape_of(made_, index);
  const AffineIndex* formula = indices_.find(made_, index);
  return formula != nullptr && !shape.empty() && shape[0] == Dim::batch() && formula->offset == 0 &&
         formula->strides[0] == stride &&
         std::all_of(formula->strides.begin() + 1, formula->strides.end(), [](int64_t other) { return other == 0; });
}

/// Whether the index counts `all` elements 0, 1, 2, ... in order; axes of stride 0 only repeat them.
bool LookUp::counts_all(const AffineIndex& index, const Shape& shape, Dim all) const {
  if (index.offset != 0) return false;
  Dim count = Dim::fixed(1);
  for (size_t i = shape.size(); i-- > 0;) {
    if (index.strides[i] == 0) continue;
    if (!count.is_fixed() || index.strides[i] != count.factor) return false;
    if (__builtin_mul_overflow(count.factor, shape[i].factor, &count.factor)) return false;
    count.power += shape[i].power;
  }
  return count == all && count.power > 0;
}

/// Whether all elements are known to lie in [0, size).
bool LookUp::is_within(ValueId index, int64_t size) {
  if (const AffineIndex* formula = indices_.find(made_, index)) {
    const Shape& shape = shape_of(made_, index);
    int64_t last = formula->offset;
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t reach = 0;
      if (formula->strides[i] == 0) continue;
      if (!shape[i].is_fixed() || formula->strides[i] < 0) return false;
      if (__builtin_mul_overflow(formula->strides[i], shape[i].factor - 1, &reach)) return false;
      if (__builtin_add_overflow(last, reach, &last)) return false;
    }
    return formula->offset >= 0 && last < size;
  }
  for (int steps = 0; steps < 16; ++steps) {
    const Node* node = producer_of(made_, index);
    if (node == nullptr || node->inputs.empty() || !node->inputs[0].valid()) return false;
    if (node->op == "ArgMax" || node->op == "ArgMin") {
      const auto rank = static_cast<int64_t>(shape_of(made_, node->inputs[0]).size());
      const int64_t axis = node->attributes.get_int("axis", 0);
      const Dim dim = shape_of(made_, node->inputs[0])[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
      return dim.is_fixed() && dim.factor <= size;
    }
    const ops::Dependence dependence = ops::dependence_of(node->op);
    const bool same =
        dependence == ops::Dependence::kSameOrder || dependence == ops::Dependence::kRepeated || node->op == "Cast";
    if (!same) return false;
    index = node->inputs[0];
  }
  return false;
}

/// A look-up of every row in order: the data themselves, reshaped to the index's shape and expanded where it repeats.
Result<Replacement> LookUp::as_reshape(const Shape& index, const AffineIndex& formula) {
  const Shape& data = shape_of(made_, step_.node.inputs[0]);
  Shape shape = index;
  for (size_t i = 0; i < index.size(); ++i)
    if (formula.strides[i] == 0) shape[i] = Dim::fixed(1);
  shape.insert(shape.end(), data.begin() + 1, data.end());
  GP_TRY(ValueId result, reshape(step_.node.inputs[0], std::move(shape)));
  if (shape_of(made_, result) != step_.outputs[0].type.shape) {
    GP_TRY(result, append("Expand", {result}, {{"shape", step_.outputs[0].type.shape}}));
  }
  return Replacement({result});
}

/// data[b, index[b, ...]] for data [B, size, ...]. Expands an index that leaves out the batch or other axes.
Result<Replacement> LookUp::per_sample(ValueId data, ValueId index) {
  Shape tuples = shape_of(made_, step_.node.inputs[1]);
  if (shape_of(made_, index) != tuples) {
    GP_TRY(index, append("Expand", {index}, {{"shape", tuples}}));
  }
  GP_TRY(const ValueId single, append("Unsqueeze", {index}, {{"axes", std::vector<int64_t>{-1}}}));
  GP_TRY(const ValueId result, append("GatherND", {data, single}, {{"batch_dims", int64_t{1}}}));
  return Replacement({result});
}

Result<Replacement> LookUp::gather() {
  if (step_.node.attributes.get_int("axis", 0) != 0) return Replacement();
  const Shape data = shape_of(made_, step_.node.inputs[0]);
  const ValueId index = step_.node.inputs[1];
  const Shape tuples = shape_of(made_, index);
  if (data.empty() || data[0].power != 1) return Replacement();
  if (const AffineIndex* formula = indices_.find(made_, index); formula && counts_all(*formula, tuples, data[0]))
    return as_reshape(tuples, AffineIndex(*formula));
  // The data are B samples of `size` rows each; the index is b * size plus a row number within the sample.
  const Node* sum = producer_of(made_, index);
  const int64_t size = data[0].factor;
  if (sum == nullptr || sum->op != "Add" || tuples.empty() || tuples[0] != Dim::batch()) return Replacement();
  for (size_t i = 0; i < 2; ++i) {
    const ValueId first = sum->inputs[i], rest = sum->inputs[1 - i];
    if (shape_of(made_, first).size() != tuples.size() || !counts_samples(first, size) || !is_within(rest, size))
      continue;
    Shape split = {Dim::batch(), Dim::fixed(size)};
    split.insert(split.end(), data.begin() + 1, data.end());
    GP_TRY(const ValueId apart, reshape(step_.node.inputs[0], std::move(split)));
    return per_sample(apart, rest);
  }
  return Replacement();
}

/// data[b] for index tuples that consist only of the sample number b.
Result<Replacement> LookUp::each_sample(ValueId index) {
  Shape tuples = shape_of(made_, index);
  tuples.pop_back();
  AffineIndex formula{0, std::vector<int64_t>(tuples.size(), 0)};
  formula.strides[0] = 1;
  return as_reshape(tuples, formula);
}

Result<Replacement> LookUp::gather_nd() {
  if (step_.node.attributes.get_int("batch_dims", 0) != 0) return Replacement();
  const ValueId data = step_.node.inputs[0], index = step_.node.inputs[1];
  if (shape_of(made_, data).empty() || shape_of(made_, data)[0] != Dim::batch()) return Replacement();
  if (counts_samples(index, 1) && shape_of(made_, index).back() == Dim::fixed(1)) return each_sample(index);
  const Node* columns = producer_of(made_, index);
  const auto rank = static_cast<int64_t>(shape_of(made_, index).size());
  if (columns == nullptr || columns->op != "Concat" || columns->inputs.size() < 2) return Replacement();
  const int64_t axis = columns->attributes.get_int("axis", 0);
  if ((axis != -1 && axis != rank - 1) || !counts_samples(columns->inputs[0], 1) ||
      shape_of(made_, columns->inputs[0]).back() != Dim::fixed(1))
    return Replacement();
  std::vector<ValueId> rest(columns->inputs.begin() + 1, columns->inputs.end());
  ValueId others = rest.front();
  if (rest.size() > 1) {
    GP_TRY(others, append("Concat", std::move(rest), {{"axis", axis}}));
  }
  GP_TRY(const ValueId result, append("GatherND", {data, others}, {{"batch_dims", int64_t{1}}}));
  return Replacement({result});
}

/// If the node takes column 0 of a Concat along axis 1 whose first operand is one column: that operand.
ValueId LookUp::first_column(const Node& node) {
  const Node* table = producer_of(made_, node.inputs[0]);
  if (table == nullptr || table->op != "Concat" || shape_of(made_, node.inputs[0]).size() != 2) return {};
  const auto is_one = [](const std::vector<int64_t>& list, int64_t number) { return list == std::vector{number}; };
  bool first = table->attributes.get_int("axis", 0) == 1 && shape_of(made_, table->inputs[0])[1] == Dim::fixed(1);
  if (node.op == "Gather") {
    const AffineIndex* place = indices_.find(made_, node.inputs[1]);
    const Dim count = ir::element_count(shape_of(made_, node.inputs[1])).value_or(Dim::batch());
    first = first && node.attributes.get_int("axis", 0) == 1 && place != nullptr && place->offset == 0 &&
            count == Dim::fixed(1);
  } else {
    const ir::Attributes& cut = node.attributes;
    first = first && is_one(cut.get_ints("axes"), 1) && is_one(cut.get_ints("starts"), 0) &&
            is_one(cut.get_ints("ends"), 1) && is_one(cut.get_ints("steps"), 1);
  }
  return first ? table->inputs[0] : ValueId();
}

/// Whether the values are the sample numbers 0, 1, ... in order, each repeated equally often.
bool LookUp::numbers_samples(ValueId number) {
  while (!counts_samples(number, 1)) {
    const Node* node = producer_of(made_, number);
    if (node == nullptr || node->inputs.empty() || !node->inputs[0].valid()) return false;
    const Shape &after = shape_of(made_, number), &before = shape_of(made_, node->inputs[0]);
    // With the batch axis in front before and after, the copies of a number stay next to each other.
    const bool repeats = ops::dependence_of(node->op) == ops::Dependence::kRepeated && after.size() == before.size() &&
                         !after.empty() && after[0] == Dim::batch() && before[0] == Dim::batch();
    const bool keeps = node->op == "Cast" || ops::dependence_of(node->op) == ops::Dependence::kSameOrder;
    if (node->op == "Gather" || node->op == "Slice") number = first_column(*node);
    else number = repeats || keeps ? node->inputs[0] : ValueId();
    if (!number.valid()) return false;
  }
  return true;
}

/// Regions that are ordered by sample, with the same number for each sample.
Result<Replacement> LookUp::regions() {
  const std::vector<ValueId>& inputs = step_.node.inputs;
  if (inputs.size() < 3) return Replacement();
  const Dim samples = shape_of(made_, inputs[0])[0], rows = shape_of(made_, inputs[1])[0];
  if (samples != Dim::batch() || rows.power != 1 || !numbers_samples(inputs[2])) return Replacement();
  ir::Attributes attributes = step_.node.attributes;
  attributes.set("per_sample", rows.factor);
  GP_TRY(const ValueId result, append("RoiAlign", {inputs[0], inputs[1]}, std::move(attributes)));
  return Replacement({result});
}

}  // namespace

Result<Replacement> separate_look_up(const Rebuilding& step, AffineIndices& indices) {
  LookUp look_up(step, indices);
  if (step.node.op == "RoiAlign") return look_up.regions();
  return step.node.op == "Gather" ? look_up.gather() : look_up.gather_nd();
}

}  // namespace graphpipe::passes
