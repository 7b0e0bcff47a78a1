#include "ir/graph_text.h"

#include <array>

#include "ir/text_cursor.h"

namespace graphpipe::ir {
namespace {

constexpr std::array<std::string_view, 3> kParamKinds = {"weight", "buffer", "constant"};
constexpr std::array<std::string_view, 3> kInputRoles = {"data", "label", "loss_scale"};
constexpr std::array<std::string_view, 2> kOutputRoles = {"model", "loss"};
constexpr std::array<std::string_view, 3> kNormalizers = {"samples", "counted", "one"};

template <size_t N, typename Kind>
std::string_view name_in(const std::array<std::string_view, N>& names, Kind kind) {
  return names.at(static_cast<size_t>(kind));
}

template <typename Items, typename Print>
std::string joined(const Items& items, Print print) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ", ";
    out += print(item);
  }
  return out;
}

template <typename Items, typename Print>
std::string bracketed(std::string_view opening, const Items& items, Print print) {
  std::string out(opening);
  for (const auto& item : items) {
    if (out.size() > opening.size()) out += ",";
    out += print(item);
  }
  return out + "]";
}

std::string print_attribute(const AttributeValue& value) {
  const auto print_int = [](int64_t number) { return std::to_string(number); };
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, int64_t>) return print_int(v);
        else if constexpr (std::is_same_v<T, double>) return number_text(v);
        else if constexpr (std::is_same_v<T, std::string>) return quote(v);
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>) return bracketed("[", v, print_int);
        else if constexpr (std::is_same_v<T, std::vector<double>>) return bracketed("real[", v, number_text);
        else return bracketed("dims[", v, print_dim);
      },
      value);
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string print_data(const DataSource& data) {
  if (const auto* file = std::get_if<FileRange>(&data))
    return text("file(", quote(file->path), ", ", file->offset, ", ", file->length,
                file->is_transposed ? ", transposed)" : ")");
  if (const auto* filled = std::get_if<FilledData>(&data)) return text("filled(", number_text(filled->value), ")");
  return text("inline(\"", hex(std::get<InlineData>(data).bytes), "\")");
}

// The type, and the batch kind where the shape does not suggest it.
std::string print_value(const Value& value) {
  std::string out = print_type(value.type);
  const auto [kind, axis] = suggested_batch(value.type.shape);
  if (value.batch == kind && value.batch_axis == axis) return out;
  out += text(" @", batch_kind_name(value.batch));
  if (value.batch == BatchKind::kAxis) out += text(" ", value.batch_axis);
  return out;
}

// Spells values: parameters carry a 'w'.
class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), params_(params_of_values(graph)) {}

  std::string id(ValueId value) const {
    if (!value.valid()) return "_";
    return text(params_[value].valid() ? "%w" : "%", value);
  }

  std::string node(NodeId node_id) const {
    const Node& node = graph_.node(node_id);
    const auto print_id = [this](ValueId value) { return id(value); };
    std::string line = text("n", node_id, "  ", joined(node.outputs, print_id), " = ", word_or_quote(node.op), "(",
                            joined(node.inputs, print_id), ")");
    if (!node.attributes.empty()) {
      line += " {" +
              joined(node.attributes,
                     [](const auto& item) { return word_or_quote(item.first) + "=" + print_attribute(item.second); }) +
              "}";
    }
    line += " : " + joined(node.outputs, [this](ValueId value) { return print_value(graph_.value(value)); });
    if (node.phase != Phase::kForward) line += text(" phase ", phase_name(node.phase));
    if (node.serves.valid()) line += text(" serves n", node.serves);
    if (node.sums_gradient_of.valid()) line += " sums " + id(node.sums_gradient_of);
    if (!node.origins.empty())
      line += " from " + joined(node.origins, [](const ModelText& origin) { return quote(origin.raw()); });
    return line;
  }

  std::string param(ParamId param_id) const {
    const Param& param = graph_.param(param_id);
    std::string line = text("p", param_id, "  ", id(param.value), " = ", name_in(kParamKinds, param.kind));
    if (param.trainable) line += " trainable";
    if (param.gradient_by_rows) line += " by_rows";
    line += " " + quote(param.name.raw());
    if (!param.aliases.empty())
      line += " also " + joined(param.aliases, [](const ModelText& alias) { return quote(alias.raw()); });
    return text(line, " ", print_data(param.data), " : ", print_value(graph_.value(param.value)));
  }

 private:
  const Graph& graph_;
  IdMap<ValueId, ParamId> params_;
};

std::string print_divisor(const Loss& loss) {
  std::string out(name_in(kNormalizers, loss.normalizer));
  if (loss.elements_per_sample != 1) out += text(" elements ", loss.elements_per_sample);
  if (!loss.label.empty()) out += " " + quote(loss.label.raw());
  if (loss.ignore_index) out += text(" ignore ", *loss.ignore_index);
  if (!loss.counted.empty())
    out += " positions " + bracketed("[", loss.counted, [](const wire::PositionRange& range) {
             return text(range.first, ",", range.last);
           });
  return out;
}

std::string print_loss(const Loss& loss) {
  std::string out = "loss " + print_divisor(loss);
  for (const Loss& term : loss.terms) out += " term " + print_divisor(term);
  if (loss.compares_samples) out += " compares";
  return out + "\n";
}

// Values that nothing produces, and that are neither inputs nor parameters.
std::string print_loose_values(const Graph& graph) {
  const IdMap<ValueId, ParamId> params = params_of_values(graph);
  IdSet<ValueId> inputs(graph.value_count());
  for (const Input& input : graph.inputs()) inputs.insert(input.value);
  std::string out;
  for (ValueId value : graph.value_ids())
    if (!graph.value(value).producer.valid() && !params[value].valid() && !inputs.contains(value))
      out += text("value %", value, " : ", print_value(graph.value(value)), "\n");
  return out;
}

}  // namespace

std::pair<BatchKind, int> suggested_batch(const Shape& shape) {
  int axis = -1;
  int with_batch = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].power == 0) continue;
    ++with_batch;
    axis = static_cast<int>(i);
  }
  if (with_batch == 0) return {BatchKind::kNone, -1};
  if (with_batch == 1 && shape[static_cast<size_t>(axis)].power == 1) return {BatchKind::kAxis, axis};
  return {BatchKind::kMixed, -1};
}

std::string print_dim(Dim dim) {
  if (dim.power == 0) return std::to_string(dim.factor);
  std::string out = dim.factor == 1 ? "B" : text(dim.factor, "*B");
  if (dim.power != 1) out += text("^", dim.power);
  return out;
}

std::string print_type(const TensorType& type) {
  return bracketed(text(dtype_name(type.dtype), "["), type.shape, print_dim);
}

std::string print_node(const Graph& graph, NodeId node) { return Printer(graph).node(node); }

std::string print_graph(const Graph& graph) {
  const Printer printer(graph);
  std::string out = "graphpipe.graph/1\n";
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    out += text("i", i, "  ", printer.id(input.value), " = ", name_in(kInputRoles, input.role), " ",
                quote(input.name.raw()), " : ", print_value(graph.value(input.value)), "\n");
  }
  for (ParamId param : graph.param_ids()) out += printer.param(param) + "\n";
  out += print_loose_values(graph);
  for (NodeId node : graph.node_ids()) out += printer.node(node) + "\n";
  for (const Output& output : graph.outputs())
    out += text("out ", name_in(kOutputRoles, output.role), " ", quote(output.name.raw()), " ",
                printer.id(output.value), "\n");
  if (graph.loss()) out += print_loss(*graph.loss());
  if (!graph.gradient_of().empty()) out += text("gradients ", graph.gradient_of().size(), "\n");
  for (ValueId value : ids<ValueId>(graph.gradient_of().size()))
    if (graph.gradient_of()[value].valid())
      out += text("gradient ", printer.id(value), " = ", printer.id(graph.gradient_of()[value]), "\n");
  for (const GradientShare& share : graph.gradient_shares())
    out += text("share p", share.param, " ", printer.id(share.value), "\n");
  return out;
}

}  // namespace graphpipe::ir
