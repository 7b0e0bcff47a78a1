#include "ir/verify_graph.h"

#include <algorithm>
#include <set>

#include "wire/packed_elements.h"

namespace graphpipe::ir {
namespace {

constexpr int kLargestPower = 8;

class GraphVerifier {
 public:
  explicit GraphVerifier(const Graph& graph) : graph_(graph), uses_(graph.value_count()) {}

  Diagnostics run(NodeCheck check) {
    check_references();
    // What follows looks up what the references name.
    if (!problems_.empty()) return problems_;
    check_producers();
    for (ValueId value : graph_.value_ids()) check_type(value);
    for (NodeId node : graph_.node_ids()) check_phase(node);
    check_params();
    check_inputs();
    check_outputs();
    check_gradients();
    if (check != nullptr && problems_.empty()) run_check(check);
    return problems_;
  }

 private:
  template <typename... Parts>
  void report(const ModelText& origin, const Parts&... parts) {
    problems_.push_back({.code = Code::kBadModel,
                         .origin = origin,
                         .message = text(parts...),
                         .hint = "this graph breaks an invariant of ir/graph.h: mend what made it"});
  }

  ModelText origin_of(NodeId node) const {
    const std::vector<ModelText>& origins = graph_.node(node).origins;
    return origins.empty() ? ModelText(text("n", node)) : origins.front();
  }

  ModelText origin_of(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer.valid() && producer.index() < graph_.node_count() ? origin_of(producer)
                                                                      : ModelText(text("%", value));
  }

  bool exists(ValueId value) const { return value.index() < graph_.value_count(); }

  void need_value(const ModelText& origin, std::string_view role, ValueId value) {
    if (!exists(value)) report(origin, role, " %", value, " does not exist");
  }

  void check_references() {
    for (NodeId id : graph_.node_ids()) {
      const Node& node = graph_.node(id);
      for (ValueId input : node.inputs)
        if (input.valid()) need_value(origin_of(id), "input", input);
      for (ValueId output : node.outputs) need_value(origin_of(id), "output", output);
      if (node.serves.valid() && node.serves.index() >= graph_.node_count())
        report(origin_of(id), "serves n", node.serves, ", which does not exist");
      if (node.sums_gradient_of.valid()) need_value(origin_of(id), "summed value", node.sums_gradient_of);
    }
    for (ValueId value : graph_.value_ids()) {
      const NodeId producer = graph_.value(value).producer;
      if (producer.valid() && producer.index() >= graph_.node_count())
        report(ModelText(text("%", value)), "its producer n", producer, " does not exist");
    }
    for (ParamId param : graph_.param_ids()) need_value(graph_.param(param).name, "value", graph_.param(param).value);
    for (const Input& input : graph_.inputs()) need_value(input.name, "value", input.value);
    for (const Output& output : graph_.outputs()) need_value(output.name, "value", output.value);
    if (graph_.gradient_of().size() > graph_.value_count()) report(ModelText(), "there are more gradients than values");
    for (ValueId gradient : graph_.gradient_of())
      if (gradient.valid()) need_value(ModelText(), "gradient", gradient);
    for (const GradientShare& share : graph_.gradient_shares()) {
      need_value(ModelText(), "gradient share", share.value);
      if (share.param.index() >= graph_.param_count()) report(ModelText(), "p", share.param, " does not exist");
    }
  }

  // One producer each: a node's output, an input or a parameter; made before it is read.
  void check_producers() {
    for (NodeId id : graph_.node_ids()) {
      for (ValueId output : graph_.node(id).outputs) {
        ++uses_[output];
        if (graph_.value(output).producer != id) report(origin_of(id), "%", output, " names another producer");
      }
      for (ValueId input : graph_.node(id).inputs) {
        if (!input.valid()) continue;
        const NodeId producer = graph_.value(input).producer;
        if (producer.valid() && producer >= id)
          report(origin_of(id), "n", id, " reads %", input, " before n", producer, " makes it");
      }
    }
    for (ParamId param : graph_.param_ids()) count_source(graph_.param(param).name, graph_.param(param).value);
    for (const Input& input : graph_.inputs()) count_source(input.name, input.value);
    for (ValueId value : graph_.value_ids())
      if (uses_[value] != 1) report(origin_of(value), "%", value, " has ", uses_[value], " producers instead of one");
  }

  void count_source(const ModelText& name, ValueId value) {
    ++uses_[value];
    if (graph_.value(value).producer.valid()) report(name, "%", value, " is computed by a node as well");
  }

  void check_type(ValueId id) {
    const Value& value = graph_.value(id);
    const Shape& shape = value.type.shape;
    for (Dim dim : shape)
      if (dim.factor < 0 || dim.power < 0 || dim.power > kLargestPower)
        report(origin_of(id), "%", id, " has a dimension of ", dim.factor, " * B^", dim.power);
    if (!element_count(shape)) report(origin_of(id), "%", id, " has more than 2^48 elements");
    const auto varying = std::ranges::count_if(shape, [](Dim dim) { return dim.power != 0; });
    const bool has_axis = value.batch_axis >= 0 && static_cast<size_t>(value.batch_axis) < shape.size();
    switch (value.batch) {
      case BatchKind::kNone:
        if (varying != 0) report(origin_of(id), "%", id, " has batch kind none and a shape that holds B");
        break;
      case BatchKind::kAxis:
        if (varying != 1 || !has_axis || shape[static_cast<size_t>(value.batch_axis)].power != 1)
          report(origin_of(id), "%", id, " has batch axis ", value.batch_axis,
                 ", which is not its one dimension with B");
        break;
      case BatchKind::kMixed:
        break;
    }
    if (value.batch != BatchKind::kAxis && value.batch_axis != -1)
      report(origin_of(id), "%", id, " has a batch axis but batch kind ", batch_kind_name(value.batch));
  }

  void check_phase(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.op.empty()) report(origin_of(id), "n", id, " has no operator");
    for (ValueId input : node.inputs) {
      const NodeId producer = input.valid() ? graph_.value(input).producer : NodeId();
      if (producer.valid() && graph_.node(producer).phase > node.phase)
        report(origin_of(id), "n", id, " of phase ", phase_name(node.phase), " reads %", input, " of the later phase ",
               phase_name(graph_.node(producer).phase));
    }
    if (node.phase == Phase::kForward) {
      if (node.serves.valid() || node.sums_gradient_of.valid())
        report(origin_of(id), "n", id, " is a forward node and serves another");
      return;
    }
    if (node.serves.valid() && graph_.node(node.serves).phase != Phase::kForward)
      report(origin_of(id), "n", id, " serves n", node.serves, ", which is no forward node");
    if (!node.serves.valid() && !node.sums_gradient_of.valid())
      report(origin_of(id), "n", id, " is a gradient node and serves no forward node");
  }

  void check_params() {
    std::set<ModelText> names;
    for (ParamId id : graph_.param_ids()) {
      const Param& param = graph_.param(id);
      const Value& value = graph_.value(param.value);
      if (!names.insert(param.name).second) report(param.name, "two parameters have this name");
      if (value.batch != BatchKind::kNone) report(param.name, "a parameter cannot depend on the batch");
      if (param.trainable && (param.kind != ParamKind::kWeight || !is_floating(value.type.dtype)))
        report(param.name, "is trainable, but not a weight of floating-point numbers");
      if (param.gradient_by_rows && !param.trainable) report(param.name, "has a gradient by rows but is not trainable");
      check_data(param, value.type);
    }
  }

  void check_data(const Param& param, const TensorType& type) {
    const int64_t bytes = byte_size(type, Samples(1)).count;
    if (const auto* file = std::get_if<FileRange>(&param.data)) {
      const int64_t stored = wire::stored_bytes(type.dtype, bytes / bytes_per_element(type.dtype));
      if (file->offset < 0 || file->length != stored)
        report(param.name, "lies at offset ", file->offset, " with ", file->length, " bytes; its type has ", stored);
      if (file->is_transposed && (type.shape.size() != 2 || wire::find_element_type(type.dtype)->packed > 1))
        report(param.name, "lies transposed in its file, and is no matrix of whole bytes");
    } else if (const auto* data = std::get_if<InlineData>(&param.data)) {
      if (static_cast<int64_t>(data->bytes.size()) != bytes)
        report(param.name, "holds ", data->bytes.size(), " bytes; its type has ", bytes);
    }
  }

  bool is_float_scalar(ValueId id) const {
    const TensorType& type = graph_.value(id).type;
    return type.shape.empty() && is_floating(type.dtype);
  }

  void check_scale(const Input& scale) {
    const size_t terms = graph_.loss() ? graph_.loss()->terms.size() : 0;
    const TensorType& type = graph_.value(scale.value).type;
    if (terms == 0 && !is_float_scalar(scale.value))
      report(scale.name, "the loss scale must be a floating-point scalar");
    if (terms > 0 &&
        (type.shape != Shape{Dim::fixed(std::ssize(graph_.loss()->terms) + 1)} || !is_floating(type.dtype)))
      report(scale.name, "the loss scale must hold ", terms + 1,
             " floating-point numbers, one more than the loss has terms");
  }

  void check_inputs() {
    int scales = 0;
    for (const Input& input : graph_.inputs()) {
      if (input.role != InputRole::kLossScale) continue;
      ++scales;
      check_scale(input);
    }
    if (scales > 1) report(ModelText(), "there are ", scales, " loss scales");
  }

  void check_outputs() {
    int losses = 0;
    for (const Output& output : graph_.outputs()) {
      const NodeId producer = graph_.value(output.value).producer;
      if (producer.valid() && graph_.node(producer).phase != Phase::kForward)
        report(output.name, "an output must be a forward value");
      if (output.role != OutputRole::kLoss) continue;
      ++losses;
      if (!is_float_scalar(output.value)) report(output.name, "the loss must be a floating-point scalar");
    }
    if (losses > 1) report(ModelText(), "there are ", losses, " losses");
    if ((losses > 0) != graph_.loss().has_value())
      report(ModelText(), losses > 0 ? "the loss is not stated" : "a loss is stated that no output has");
    if (!graph_.loss()) return;
    check_loss(*graph_.loss());
    for (const Loss& term : graph_.loss()->terms) {
      check_loss(term);
      if (!term.terms.empty()) report(ModelText(), "a term of the loss has terms");
    }
  }

  void check_loss(const Loss& loss) {
    if (loss.elements_per_sample < 1)
      report(ModelText(), "the loss averages over ", loss.elements_per_sample, " elements");
    if (loss.normalizer != wire::LossNormalizer::kCountedPositions) return;
    const auto label = std::ranges::find(graph_.inputs(), loss.label, &Input::name);
    if (label == graph_.inputs().end()) return report(loss.label, "the loss counts this label, which is no input");
    const Value& value = graph_.value(label->value);
    const std::optional<Dim> elements = element_count(value.type.shape);
    if (value.batch != BatchKind::kAxis || is_floating(value.type.dtype) || !elements)
      return report(loss.label, "the loss counts this label, which does not hold whole numbers for each sample");
    int64_t last = 0;
    for (const wire::PositionRange& range : loss.counted) {
      if (range.first < last || range.last <= range.first || range.last > elements->factor)
        return report(loss.label, "the loss counts positions [", range.first, ",", range.last,
                      ") of a sample, which are ", "out of order or not there");
      last = range.last + 1;
    }
  }

  void check_gradients() {
    for (ValueId id : ids<ValueId>(graph_.gradient_of().size())) {
      const ValueId gradient = graph_.gradient_of()[id];
      if (gradient.valid() && graph_.value(gradient).type != graph_.value(id).type)
        report(origin_of(id), "the gradient %", gradient, " has another type than its value %", id);
    }
    for (const GradientShare& share : graph_.gradient_shares()) {
      const Param& param = graph_.param(share.param);
      if (!param.trainable) report(param.name, "has a gradient but is not trainable");
      if (graph_.value(share.value).type != graph_.value(param.value).type)
        report(param.name, "its gradient %", share.value, " has another type");
    }
  }

  void run_check(NodeCheck check) {
    for (NodeId node : graph_.node_ids()) {
      const Status status = check(graph_, node);
      problems_.insert(problems_.end(), status.problems().begin(), status.problems().end());
    }
  }

  const Graph& graph_;
  IdMap<ValueId, int> uses_;
  Diagnostics problems_;
};

}  // namespace

Status verify_graph(const Graph& graph, NodeCheck check) {
  Diagnostics problems = GraphVerifier(graph).run(check);
  if (!problems.empty()) return problems;
  return Ok{};
}

}  // namespace graphpipe::ir
