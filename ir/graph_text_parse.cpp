#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "ir/graph_text.h"
#include "ir/text_cursor.h"

namespace graphpipe::ir {
namespace {

constexpr uint64_t kLargestId = std::numeric_limits<uint32_t>::max() - 1;
constexpr uint64_t kLargestPowerRead = 8;

// A mention of something that may stand further down, checked when all lines have been read.
struct Reference {
  char kind;  // '%', 'n' or 'p'
  uint64_t index;
  size_t line;
};

struct Definition {
  ValueId id;
  Value value;
  size_t line;
};

// All lines read, nothing connected yet.
struct Draft {
  std::vector<Definition> values;
  std::vector<Node> nodes;
  std::vector<Param> params;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::optional<Loss> loss;
  uint64_t gradient_count = 0;
  size_t gradient_line = 0;
  std::vector<std::pair<ValueId, ValueId>> gradients;
  std::vector<GradientShare> shares;
  std::vector<Reference> references;
};

class LineParser {
 public:
  LineParser(std::string_view line, size_t number, Draft& draft) : cursor_(line), number_(number), draft_(draft) {}

  /// What is wrong with the line; empty where nothing is.
  std::string parse() {
    if (cursor_.accept("out")) parse_output();
    else if (cursor_.accept("loss")) parse_loss();
    else if (cursor_.accept("value")) parse_loose_value();
    else if (cursor_.accept("gradients")) parse_gradient_count();
    else if (cursor_.accept("gradient")) parse_gradient();
    else if (cursor_.accept("share")) parse_share();
    else parse_numbered();
    cursor_.expect_end();
    return cursor_.problem();
  }

 private:
  void parse_numbered() {
    const std::string label = cursor_.word();
    if (!cursor_.ok()) return;
    const char kind = label.front();
    if (kind == 'n' && is_next(label, draft_.nodes.size())) parse_node();
    else if (kind == 'p' && is_next(label, draft_.params.size())) parse_param();
    else if (kind == 'i' && is_next(label, draft_.inputs.size())) parse_input();
    else
      cursor_.fail(
          "a line starts with i, p or n and the next number, or with value, out, loss, gradients, gradient, "
          "share");
  }

  static bool is_next(const std::string& label, size_t count) { return label.substr(1) == std::to_string(count); }

  void parse_input() {
    const ValueId id = defined_id();
    cursor_.expect("=");
    Input input{.value = id};
    if (cursor_.accept("label")) input.role = InputRole::kLabel;
    else if (cursor_.accept("loss_scale")) input.role = InputRole::kLossScale;
    else cursor_.expect("data");
    input.name = ModelText(cursor_.quoted());
    cursor_.expect(":");
    define(id);
    draft_.inputs.push_back(std::move(input));
  }

  void parse_param() {
    const ValueId id = defined_id();
    cursor_.expect("=");
    Param param{.value = id};
    if (cursor_.accept("buffer")) param.kind = ParamKind::kBuffer;
    else if (cursor_.accept("constant")) param.kind = ParamKind::kConstant;
    else cursor_.expect("weight");
    param.trainable = cursor_.accept("trainable");
    param.gradient_by_rows = cursor_.accept("by_rows");
    param.name = ModelText(cursor_.quoted());
    if (cursor_.accept("also")) param.aliases = names();
    param.data = data();
    cursor_.expect(":");
    define(id);
    draft_.params.push_back(std::move(param));
  }

  void parse_loose_value() {
    const ValueId id = defined_id();
    cursor_.expect(":");
    define(id);
  }

  void parse_node() {
    Node node;
    if (!cursor_.accept("=")) {
      do node.outputs.push_back(defined_id());
      while (cursor_.accept(","));
      cursor_.expect("=");
    }
    node.op = cursor_.name();
    cursor_.expect("(");
    if (!cursor_.accept(")")) {
      do node.inputs.push_back(cursor_.accept("_") ? ValueId() : value_id());
      while (cursor_.accept(","));
      cursor_.expect(")");
    }
    if (cursor_.accept("{")) node.attributes = attributes();
    cursor_.expect(":");
    for (size_t i = 0; i < node.outputs.size() && cursor_.ok(); ++i) {
      if (i > 0) cursor_.expect(",");
      define(node.outputs[i]);
    }
    if (cursor_.accept("phase")) node.phase = gradient_phase();
    if (cursor_.accept("serves")) node.serves = NodeId(reference('n'));
    if (cursor_.accept("sums")) node.sums_gradient_of = value_id();
    if (cursor_.accept("from")) node.origins = names();
    draft_.nodes.push_back(std::move(node));
  }

  void parse_output() {
    Output output;
    if (cursor_.accept("loss")) output.role = OutputRole::kLoss;
    else cursor_.expect("model");
    output.name = ModelText(cursor_.quoted());
    output.value = value_id();
    draft_.outputs.push_back(std::move(output));
  }

  void parse_loss() {
    if (draft_.loss) cursor_.fail("the loss is stated twice");
    Loss& loss = draft_.loss.emplace(divisor());
    while (cursor_.accept("term")) loss.terms.push_back(divisor());
    loss.compares_samples = cursor_.accept("compares");
  }

  Loss divisor() {
    Loss loss;
    if (cursor_.accept("counted")) loss.normalizer = wire::LossNormalizer::kCountedPositions;
    else if (cursor_.accept("one")) loss.normalizer = wire::LossNormalizer::kOne;
    else cursor_.expect("samples");
    if (cursor_.accept("elements")) loss.elements_per_sample = cursor_.integer();
    if (cursor_.next_is('"')) loss.label = ModelText(cursor_.quoted());
    if (cursor_.accept("ignore")) loss.ignore_index = cursor_.integer();
    if (cursor_.accept("positions")) loss.counted = positions();
    return loss;
  }

  /// [first, last, first, last, ...]
  std::vector<wire::PositionRange> positions() {
    const auto bounds = list<std::vector<int64_t>>([this] { return cursor_.integer(); });
    if (bounds.size() % 2 != 0) cursor_.fail("positions are pairs of the first and the one after the last");
    std::vector<wire::PositionRange> ranges;
    for (size_t i = 0; i + 1 < bounds.size(); i += 2) ranges.push_back({bounds[i], bounds[i + 1]});
    return ranges;
  }

  void parse_gradient_count() {
    draft_.gradient_count = cursor_.index(kLargestId);
    draft_.gradient_line = number_;
  }

  void parse_gradient() {
    const ValueId value = value_id();
    cursor_.expect("=");
    draft_.gradients.emplace_back(value, value_id());
  }

  void parse_share() {
    const ParamId param(reference('p'));
    draft_.shares.push_back({param, value_id()});
  }

  Phase gradient_phase() {
    if (cursor_.accept("W")) return Phase::kWeightGradient;
    cursor_.expect("I");
    return Phase::kInputGradient;
  }

  std::vector<ModelText> names() {
    std::vector<ModelText> list;
    do list.emplace_back(cursor_.quoted());
    while (cursor_.accept(","));
    return list;
  }

  uint64_t reference(char kind) {
    if (!cursor_.accept_character(kind)) cursor_.fail(text("'", kind, "' and a number should stand here"));
    const uint64_t index = cursor_.index(kLargestId);
    draft_.references.push_back({kind, index, number_});
    return index;
  }

  // The 'w' before a parameter's number is for people: which values are parameters stands in the p lines.
  uint64_t value_index() {
    cursor_.expect("%");
    cursor_.accept_character('w');
    return cursor_.index(kLargestId);
  }
  ValueId defined_id() { return ValueId(value_index()); }
  ValueId value_id() {
    const uint64_t index = value_index();
    draft_.references.push_back({'%', index, number_});
    return ValueId(index);
  }

  void define(ValueId id) {
    Value value;
    value.type = type();
    std::tie(value.batch, value.batch_axis) = suggested_batch(value.type.shape);
    if (cursor_.accept("@")) {
      value.batch_axis = -1;
      if (cursor_.accept("none")) value.batch = BatchKind::kNone;
      else if (cursor_.accept("mixed")) value.batch = BatchKind::kMixed;
      else {
        cursor_.expect("axis");
        value.batch = BatchKind::kAxis;
        value.batch_axis = static_cast<int>(cursor_.index(std::numeric_limits<int>::max()));
      }
    }
    draft_.values.push_back({id, std::move(value), number_});
  }

  TensorType type() {
    TensorType type;
    const std::optional<DType> dtype = dtype_of_name(cursor_.word());
    if (dtype) type.dtype = *dtype;
    else cursor_.fail("an element type such as f32 should stand here");
    type.shape = shape();
    return type;
  }

  Shape shape() {
    return list<Shape>([this] {
      Dim dim;
      const bool has_factor = !cursor_.accept("B");
      if (has_factor) dim.factor = cursor_.integer();
      if (has_factor && !cursor_.accept("*")) return dim;
      if (has_factor && !cursor_.accept("B")) cursor_.fail("'B' should stand here");
      dim.power = cursor_.accept("^") ? static_cast<int>(cursor_.index(kLargestPowerRead)) : 1;
      return dim;
    });
  }

  template <typename List, typename Item>
  List list(Item item) {
    List items;
    cursor_.expect("[");
    if (cursor_.accept("]")) return items;
    do items.push_back(item());
    while (cursor_.accept(","));
    cursor_.expect("]");
    return items;
  }

  Attributes attributes() {
    Attributes attributes;
    do {
      const std::string name = cursor_.name();
      cursor_.expect("=");
      if (attributes.has(name)) cursor_.fail("this attribute stands here twice");
      attributes.set(name, attribute());
    } while (cursor_.accept(","));
    cursor_.expect("}");
    return attributes;
  }

  AttributeValue attribute() {
    if (cursor_.next_is('"')) return cursor_.quoted();
    if (cursor_.next_is('[')) return list<std::vector<int64_t>>([this] { return cursor_.integer(); });
    if (cursor_.accept("real")) return list<std::vector<double>>([this] { return cursor_.real(); });
    if (cursor_.accept("dims")) return shape();
    if (cursor_.next_is_real()) return cursor_.real();
    return cursor_.integer();
  }

  DataSource data() {
    DataSource source;
    if (cursor_.accept("file")) {
      FileRange range;
      cursor_.expect("(");
      range.path = cursor_.quoted();
      cursor_.expect(",");
      range.offset = cursor_.integer();
      cursor_.expect(",");
      range.length = cursor_.integer();
      if (cursor_.accept(",")) {
        cursor_.expect("transposed");
        range.is_transposed = true;
      }
      source = std::move(range);
    } else if (cursor_.accept("filled")) {
      cursor_.expect("(");
      source = FilledData{cursor_.real()};
    } else {
      cursor_.expect("inline");
      cursor_.expect("(");
      source = InlineData{hex_bytes()};
    }
    cursor_.expect(")");
    return source;
  }

  std::string hex_bytes() {
    const std::string digits = cursor_.quoted();
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) {
      const int high = hex_digit(digits[i]), low = hex_digit(digits[i + 1]);
      if (high < 0 || low < 0) cursor_.fail("inline data are hex digits");
      bytes += static_cast<char>(high * 16 + low);
    }
    if (digits.size() % 2 != 0) cursor_.fail("inline data are pairs of hex digits");
    return bytes;
  }

  TextCursor cursor_;
  size_t number_;
  Draft& draft_;
};

Diagnostic at_line(size_t line, std::string_view what) {
  return {.code = Code::kMalformedFile,
          .message = text("line ", line, ", ", what),
          .hint = "write the graph as `print_graph` does"};
}

// Value ids must be dense, each defined once: then they are below the number of definitions, which bounds memory.
Diagnostics check_references(const Draft& draft) {
  Diagnostics problems;
  std::vector<bool> defined(draft.values.size(), false);
  for (const Definition& definition : draft.values) {
    const size_t index = definition.id.index();
    if (index >= defined.size())
      problems.push_back(
          at_line(definition.line, text("%", index, " leaves gaps: there are ", defined.size(), " values")));
    else if (defined[index]) problems.push_back(at_line(definition.line, text("%", index, " is defined twice")));
    else defined[index] = true;
  }
  for (const Reference& reference : draft.references) {
    const size_t count = reference.kind == '%'   ? draft.values.size()
                         : reference.kind == 'n' ? draft.nodes.size()
                                                 : draft.params.size();
    if (reference.index >= count)
      problems.push_back(at_line(reference.line, text(reference.kind, reference.index, " is not defined")));
  }
  if (draft.gradient_count > draft.values.size())
    problems.push_back(at_line(draft.gradient_line, "there are more gradients than values"));
  for (const auto& [value, gradient] : draft.gradients)
    if (value.index() >= draft.gradient_count)
      problems.push_back(at_line(draft.gradient_line, text("the gradient of %", value, " lies beyond their number")));
  return problems;
}

Graph connect(Draft draft) {
  Graph graph;
  IdMap<ValueId, Value> values(draft.values.size());
  for (Definition& definition : draft.values) values[definition.id] = std::move(definition.value);
  for (Value& value : values) graph.add_value(std::move(value));
  for (Node& node : draft.nodes) graph.add_node(std::move(node));
  for (Param& param : draft.params) graph.add_param(std::move(param));
  graph.inputs() = std::move(draft.inputs);
  graph.outputs() = std::move(draft.outputs);
  graph.loss() = std::move(draft.loss);
  graph.gradient_of().resize(draft.gradient_count);
  for (const auto& [value, gradient] : draft.gradients) graph.gradient_of()[value] = gradient;
  graph.gradient_shares() = std::move(draft.shares);
  return graph;
}

}  // namespace

Result<Graph> parse_graph(std::string_view text_form) {
  Draft draft;
  Diagnostics problems;
  bool has_header = false;
  size_t number = 0;
  while (!text_form.empty()) {
    const size_t end = std::min(text_form.find('\n'), text_form.size());
    const std::string_view line = text_form.substr(0, end);
    text_form.remove_prefix(std::min(end + 1, text_form.size()));
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    if (!has_header) {
      if (line != "graphpipe.graph/1") return at_line(number, "'graphpipe.graph/1' should stand here");
      has_header = true;
      continue;
    }
    const std::string problem = LineParser(line, number, draft).parse();
    if (!problem.empty()) problems.push_back(at_line(number, problem));
  }
  if (!has_header) return at_line(1, "'graphpipe.graph/1' should stand here");
  if (!problems.empty()) return problems;
  problems = check_references(draft);
  if (!problems.empty()) return problems;
  return connect(std::move(draft));
}

}  // namespace graphpipe::ir
