#include "tests/ops_run/op_cases.h"

#include <algorithm>
#include <numeric>

#include "passes/gradient_builder.h"
#include "passes/pass.h"
#include "tests/ops_run/case_table.h"

namespace graphpipe::ops_run {
namespace {

/// splitmix64: the same numbers on every machine.
class Numbers {
 public:
  explicit Numbers(std::string_view seed) {
    for (char c : seed) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

/// Multiples of 1/1024: exact in float32, and short in print.
double rounded(double value) { return static_cast<double>(static_cast<int64_t>(value * 1024)) / 1024; }

double draw(const ops::ExampleInput& input, Numbers& numbers) {
  using Fill = ops::ExampleInput::Fill;
  switch (input.fill) {
    case Fill::kNormal: {
      double sum = -2;
      for (int i = 0; i < 4; ++i) sum += numbers.uniform();
      return rounded(sum * 1.7320508);
    }
    case Fill::kPositive:
      return static_cast<double>(input.low) + rounded(0.5 + 1.5 * numbers.uniform());
    case Fill::kUniform01:
      return rounded(0.05 + 0.9 * numbers.uniform());
    case Fill::kInteger: {
      const auto range = static_cast<uint64_t>(std::max<int64_t>(input.high - input.low, 1));
      return static_cast<double>(input.low + static_cast<int64_t>(numbers.next() % range));
    }
    case Fill::kBool:
      return static_cast<double>(numbers.next() & 1);
    case Fill::kPermutation:
      break;
  }
  return 0;
}

std::vector<double> draw_all(const ops::ExampleInput& input, size_t count, std::string_view seed) {
  Numbers numbers(seed);
  std::vector<double> values(count);
  if (input.fill != ops::ExampleInput::Fill::kPermutation) {
    for (double& value : values) value = draw(input, numbers);
    return values;
  }
  std::vector<int64_t> places(count);
  std::iota(places.begin(), places.end(), -static_cast<int64_t>(count) / 2);
  for (size_t i = count; i > 1; --i) std::swap(places[i - 1], places[numbers.next() % i]);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(2 * places[i] + 1) / 8;
  return values;
}

ir::Value value_of(const ops::ExampleInput& input, ir::DType floating) {
  ir::Value value{.type = {input.dtype == ir::DType::kFloat32 ? floating : input.dtype, input.shape}};
  int power = 0;
  for (size_t axis = 0; axis < input.shape.size(); ++axis) {
    power += input.shape[axis].power;
    if (input.shape[axis].power != 0) value.batch_axis = static_cast<int>(axis);
  }
  if (power == 1) value.batch = ir::BatchKind::kAxis;
  if (power > 1) value.batch = ir::BatchKind::kMixed;
  if (power != 1) value.batch_axis = -1;
  return value;
}

class CaseMaker {
 public:
  CaseMaker(const ops::OpDef& row, size_t example, ir::DType floating)
      : row_(row), example_(row.examples[example]), floating_(floating) {
    made_.name = text(row.name, "/", example);
  }

  std::optional<ir::Graph> make_overwriting() {
    if (row_.emit_in_place == nullptr) return std::nullopt;
    ir::Node node = make_node();
    const Result<ir::NodeId> negated =
        passes::append_node(made_.graph, {.op = "Neg", .attributes = {}, .inputs = {node.inputs.front()}});
    if (!negated.ok()) return std::nullopt;
    node.inputs.front() = made_.graph.node(*negated).outputs.front();
    const ir::ValueId input = node.inputs.front();
    const Result<ir::NodeId> added = passes::append_node(made_.graph, std::move(node));
    if (!added.ok()) return std::nullopt;
    const ir::ValueId output = made_.graph.node(*added).outputs.front();
    if (made_.graph.value(input).type != made_.graph.value(output).type) return std::nullopt;
    add_output(output);
    return std::move(made_.graph);
  }

  OpCase make() {
    ir::Node node = make_node();
    Result<ir::NodeId> added = passes::append_node(made_.graph, std::move(node));
    if (!added.ok()) return failed(added.problems());
    made_.forward = *added;
    const std::vector<ir::ValueId> outputs = made_.graph.node(*added).outputs;
    made_.outputs = outputs.size();
    made_.dependence = static_cast<int>(row_.dependence);
    made_.axis = static_cast<int>(example_.attributes.get_int("axis", -1));
    made_.mixes_samples =
        row_.mixes_samples != nullptr && row_.mixes_samples(ops::NodeView(made_.graph, made_.graph.node(*added)));
    for (ir::ValueId output : outputs) add_output(output);
    if (outputs.size() != example_.outputs) {
      made_.problem = text("gives ", outputs.size(), " outputs, the example says ", example_.outputs);
    }
    if (row_.gradient != nullptr && made_.problem.empty()) add_gradients(outputs);
    return std::move(made_);
  }

 private:
  OpCase failed(const Diagnostics& problems) {
    made_.problem = to_line(problems.front());
    return std::move(made_);
  }

  ir::ValueId add_input(const ops::ExampleInput& input) {
    const ir::Value value = value_of(input, floating_);
    size_t count = 1;
    for (ir::Dim dim : input.shape) count *= static_cast<size_t>(dim.at(Samples(kCaseSamples)));
    const std::string seed = text(made_.name, "#", made_.values.size());
    made_.values.push_back(draw_all(input, count, seed));
    return made_.graph.add_input({.value = {}, .name = ModelText(seed)}, value);
  }

  ir::Node make_node() {
    ir::Node node;
    node.op = row_.name;
    node.attributes = example_.attributes;
    const ir::AttributeValue* to = node.attributes.find("to");
    if (to != nullptr && *to == ir::AttributeValue(std::string("f32"))) {
      node.attributes.set("to", std::string(ir::dtype_name(floating_)));
    }
    for (const ops::ExampleInput& input : example_.inputs) {
      node.inputs.push_back(input.absent ? ir::ValueId() : add_input(input));
    }
    return node;
  }

  void add_output(ir::ValueId value) {
    made_.graph.outputs().push_back({.value = value, .name = ModelText(text("out", value))});
  }

  /// Outputs after the first are by-products (statistics, masks), but for the ops that compute several things.
  bool is_weighted(size_t output) const {
    if (row_.name == "LSTM") return output < 3;
    if (row_.name == "GRU") return output < 2;
    return output == 0 || row_.name == "Split";
  }

  void add_gradients(const std::vector<ir::ValueId>& outputs) {
    std::vector<ir::ValueId> weights(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ir::TensorType& type = made_.graph.value(outputs[i]).type;
      if (!ir::is_floating(type.dtype) || !is_weighted(i)) continue;
      ops::ExampleInput input;
      input.shape = type.shape;
      made_.weighted_outputs.push_back(static_cast<int>(i));
      made_.weights.push_back(static_cast<int>(made_.values.size()));
      weights[i] = add_input(input);
    }
    const ir::Graph before = made_.graph;
    const ir::Node& node = before.node(made_.forward);
    IdMap<ir::ValueId, ir::ValueId> gradient_of(before.value_count());
    IdSet<ir::ValueId> needs(before.value_count());
    for (size_t i = 0; i < outputs.size(); ++i) gradient_of[outputs[i]] = weights[i];
    for (ir::ValueId output : outputs) needs.insert(output);
    bool any = false;
    const uint32_t mask =
        row_.updates_inputs == nullptr ? 0 : row_.updates_inputs(ops::NodeView(before, before.node(made_.forward)));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool updated = (mask >> i & 1) != 0;
      if (!node.inputs[i].valid()) continue;
      if (updated) made_.updated.push_back(static_cast<int>(node.inputs[i].index()));
      if (updated || !ir::is_floating(before.value(node.inputs[i]).type.dtype)) continue;
      needs.insert(node.inputs[i]);
      any = true;
    }
    if (!any || made_.weighted_outputs.empty()) return;
    differentiate(before, gradient_of, needs);
  }

  void differentiate(const ir::Graph& before, const IdMap<ir::ValueId, ir::ValueId>& gradient_of,
                     const IdSet<ir::ValueId>& needs) {
    passes::NodeGradientBuilder builder(before, made_.graph, made_.forward, gradient_of, needs);
    const Status status = row_.gradient(builder);
    if (!status.ok()) return keep_problem(status.problems());
    const auto gradients = builder.contributions();
    if (!gradients.ok()) return keep_problem(gradients.problems());
    for (const auto& [input, gradient] : *gradients) {
      made_.differentiated.push_back(static_cast<int>(before.node(made_.forward).inputs[input].index()));
      add_output(gradient);
    }
  }

  void keep_problem(const Diagnostics& problems) { made_.problem = to_line(problems.front()); }

  const ops::OpDef& row_;
  const ops::Example& example_;
  ir::DType floating_;
  OpCase made_;
};

}  // namespace

OpCase make_case(const ops::OpDef& row, size_t example, ir::DType floating) {
  return CaseMaker(row, example, floating).make();
}

std::optional<ir::Graph> make_overwriting_graph(const ops::OpDef& row, size_t example) {
  return CaseMaker(row, example, ir::DType::kFloat32).make_overwriting();
}

}  // namespace graphpipe::ops_run
