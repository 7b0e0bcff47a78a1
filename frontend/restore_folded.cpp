#include "frontend/restore_folded.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "frontend/body_reads.h"
#include "frontend/code_line.h"
#include "frontend/equal_parts.h"
#include "frontend/features.h"
#include "frontend/folded_tensor.h"
#include "frontend/folding_note.h"
#include "frontend/gradient_ends.h"
#include "frontend/looked_up_rows.h"
#include "frontend/lost_by_export.h"
#include "frontend/merged_readers.h"
#include "frontend/value_names.h"
#include "support/check.h"
#include "wire/element_bytes.h"

namespace graphpipe::frontend {
namespace {

using Extents = std::vector<int64_t>;

constexpr int kOnnxInt32 = 6, kOnnxInt64 = 7;

int64_t elements_in(const Extents& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

bool is_exponential(FoldedValues values) {
  return values == FoldedValues::kExponential || values == FoldedValues::kNegatedExponential;
}

bool is_gate(FoldedValues values) { return values == FoldedValues::kSigmoid || values == FoldedValues::kTanh; }

std::string_view call_of(FoldedValues values) {
  return is_exponential(values) ? "exp(" : values == FoldedValues::kTanh ? "tanh(" : "sigmoid(";
}

/// Whether numbers are equal, up to what an exponential and its logarithm, or an addition, round.
bool are_close(int onnx_type, const std::string& one, const std::string& other) {
  const auto compare = [&]<typename T>(T tolerance) {
    for (size_t at = 0; at < one.size(); at += sizeof(T)) {
      T a, b;
      std::memcpy(&a, one.data() + at, sizeof(T));
      std::memcpy(&b, other.data() + at, sizeof(T));
      if (!(std::abs(a - b) <= tolerance * std::max(T(1), std::abs(a)))) return false;
    }
    return true;
  };
  if (one.size() != other.size()) return false;
  return dtype_of_onnx(onnx_type) == ir::DType::kFloat32 ? compare(1e-6F) : compare(1e-12);
}

class FoldedRestorer {
 public:
  FoldedRestorer(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                 const ElementsOf& elements_of, Restoration& restored)
      : body_(body),
        signature_(signature),
        rules_(rules),
        elements_of_(elements_of),
        restored_(restored),
        readers_of_(body, signature),
        names_(value_names(body)),
        bound_(bound_names(body)) {
    for (size_t i = 0; i < body.initializers.size(); ++i) initializers_.emplace(body.initializers[i].name, i);
    for (const ValueInfo& input : body.inputs) bound_.insert(input.name);
    for (const auto& [name, note] : body.folded_from)
      if (initializers_.contains(name))
        for (std::string& from : parse_names(note)) ++noted_[std::move(from)];
  }

  void run() {
    const size_t count = body_.initializers.size();
    for (size_t i = 0; i < count; ++i) restore(body_.initializers[i]);
    put_in_front(body_, restored_, std::move(nodes_), std::move(added_), gone_);
  }

 private:
  void restore(const Tensor& tensor) {
    const auto note = body_.folded_from.find(tensor.name);
    const auto dtype = dtype_of_onnx(tensor.onnx_type);
    if (note == body_.folded_from.end() || !dtype || !ir::is_floating(*dtype)) return;
    if (wire::find_element_type(*dtype)->packed != 1 || bound_.contains(tensor.name)) return;
    if (tensor.layout != Tensor::Layout::kDense) return;  // a parameter that has been restored
    if (restore_repeated(tensor, note->second) || restore_look_up(tensor, note->second)) return;
    if (restore_rows(tensor, note->second)) return;
    std::optional<FoldedTensor> folded = folded_tensor(tensor, note->second, signature_);
    if (!folded || rules_.tied(folded->parameter).value_or(false)) return;
    const std::optional<TensorReading> reading = readers_of_.readers_of(tensor.name, folded->parameter);
    if (!reading || !may_separate(*reading, *folded) || !find_added(body_.nodes[reading->own], *folded)) return;
    const std::optional<Tensor> part = part_of(tensor, *folded);
    const std::optional<Extents> dims = part ? parameter_for(*part, *folded) : std::nullopt;
    if (!dims) return;
    note_elsewhere(tensor.name, folded->values);
    if (may_be_one_number(*part, *folded)) restored_.taken_for_tokens.push_back(folded->parameter);
    std::vector<FoldedTensor> others(reading->merged.size(), *folded);
    for (size_t i = 0; i < others.size(); ++i) {
      others[i].parameter = reading->merged[i].parameter;
      others[i].dims = *dims;
      GP_CHECK(parameter_for(*part, others[i]));  // as for the first parameter
    }
    for (size_t i = 0; i < others.size(); ++i) separate(reading->merged[i], tensor, *part, others[i], *dims);
    compute(tensor.name, tensor, *part, *folded, *dims);
    gone_.insert(tensor.name);
  }

  void note_elsewhere(const std::string& value, FoldedValues computed) {
    if ((is_gate(computed) || is_exponential(computed)) && may_have_no_gradient(body_, value, call_of(computed)))
      (is_gate(computed) ? restored_.recomputed_elsewhere : restored_.exponentials_elsewhere).push_back(value);
  }

  /// What is computed from the parameter: the tensor, or the part of it that is repeated. Nothing where the elements do
  /// not say which it is.
  std::optional<Tensor> part_of(const Tensor& tensor, const FoldedTensor& folded) const {
    if (!folded.is_expanded) return tensor;
    if (tensor.dims[0] != fixed_batch()) return std::nullopt;
    const std::optional<std::string> elements = elements_of_(tensor);
    if (!elements || !is_expanded_first(tensor, has_features(body_, tensor), *elements)) return std::nullopt;
    Tensor part = tensor;
    part.data = {.slot = -1, .bytes = first_parts(*elements, tensor.dims, 0, element_bytes(tensor))};
    part.dims[0] = 1;
    return part;
  }

  /// Of names such as "cls_token" nobody asks.
  bool may_be_one_number(const Tensor& part, const FoldedTensor& folded) const {
    const std::optional<std::string> elements = folded.is_expanded ? elements_of_(part) : std::nullopt;
    return elements && is_uniform(*elements, element_bytes(part)) && !is_name_of_token(folded.parameter);
  }

  /// That of all inputs; nothing where it is open. No module has a parameter of each sample of a batch.
  std::optional<int64_t> fixed_batch() const {
    std::optional<int64_t> batch;
    for (const ValueInfo& input : body_.inputs) {
      const std::optional<int64_t> size = input.dims.empty() ? std::nullopt : input.dims[0].size;
      if (!size || (batch && batch != size)) return std::nullopt;
      batch = size;
    }
    return batch;
  }

  /// Nodes that compute the value of this name from the parameter, as the tensor was.
  void compute(const std::string& result, const Tensor& tensor, Tensor part, const FoldedTensor& folded,
               const Extents& dims) {
    if (!folded.is_expanded) return add_nodes(part, result, folded, dims);
    part.name = dims == part.dims ? folded.parameter : unused(result + "/part");
    if (dims != part.dims) add_nodes(part, part.name, folded, dims);
    add_expand(part.name, result, tensor);
  }

  void add_expand(const std::string& from, const std::string& result, const Tensor& like) {
    OnnxNode& expand = nodes_.emplace_back();
    expand.name = result;
    expand.op = "Expand";
    expand.inputs = {from, add_dims(like)};
    expand.outputs = {result};
  }

  /// A call of repeat gives its argument as many axes as it repeats before it does, which is computed beforehand. Where
  /// these are more than the parameter has is not said.
  bool restore_repeated(const Tensor& tensor, const std::string& note) {
    const std::string parameter = readers_of_.repeated(tensor.name);
    const std::vector<std::string> from = parse_names(note);
    const auto is_other = [&](const std::string& name) { return name != parameter && !is_anonymous(name); };
    if (std::ranges::find(from, parameter) == from.end() || std::ranges::any_of(from, is_other)) return false;
    if (rules_.tied(parameter).value_or(false)) return false;
    const FoldedTensor folded{.parameter = parameter, .has_new_shape = true, .dims = tensor.dims};
    const std::optional<Extents> dims = parameter_for(tensor, folded);
    if (!dims) return false;
    add_nodes(tensor, tensor.name, folded, *dims);
    gone_.insert(tensor.name);
    return true;
  }

  /// Rows of a table that were looked up for all samples, or in all places: those that began alike are one row of it,
  /// unless all elements are equal, as of a table that begins as zeros. They have no place in the module's state.
  bool restore_look_up(const Tensor& tensor, const std::string& note) {
    const std::vector<std::string> from = parse_names(note);
    const auto is_parameter = [&](const std::string& name) { return signature_.lists_parameter(name); };
    if (call_of_value(tensor.name) != "embedding" || std::ranges::count_if(from, is_parameter) != 1) return false;
    const std::optional<std::string> elements = tensor.dims.size() > 1 ? elements_of_(tensor) : std::nullopt;
    if (!elements || is_uniform(*elements, element_bytes(tensor))) return false;
    LookedUp found{.name = tensor.name, .table = *std::ranges::find_if(from, is_parameter)};
    const std::vector<size_t> axes = repeated_axes(tensor, *elements, ids_of(tensor, from), found.is_assumed);
    if (axes.empty()) return false;
    Tensor rows = first_along(axes, tensor, *elements);
    rows.name = unused(text(tensor.name, kRowsSuffix));
    add_expand(rows.name, tensor.name, tensor);
    body_.folded_from[rows.name] = note;
    restored_.look_ups.push_back(std::move(found));
    added_.push_back(std::move(rows));
    gone_.insert(tensor.name);
    return true;
  }

  /// Rows of a table of relative positions, in the places that read them. Of a table that is read in another way, or
  /// was looked up twice, one part would train apart from the other.
  bool restore_rows(const Tensor& tensor, const std::string& note) {
    const std::optional<LookUpCalls> calls = look_up_calls(tensor.name, note, signature_);
    if (!calls || rules_.tied(calls->table).value_or(false) || !is_alone(calls->table)) return false;
    const std::optional<TensorReading> reading = readers_of_.readers_of(tensor.name, calls->table);
    const std::optional<std::string> elements = elements_of_(tensor);
    if (!reading || !reading->merged.empty() || !elements) return false;
    Tensor part = tensor;
    const bool is_expanded = calls->is_expanded && !tensor.dims.empty() && tensor.dims[0] > 1 &&
                             tensor.dims[0] == fixed_batch() &&
                             has_equal_parts(*elements, tensor.dims, 0, element_bytes(tensor));
    part.data = {.slot = -1, .bytes = is_expanded ? first_along({0}, tensor, *elements).data.bytes : *elements};
    if (is_expanded) part.dims[0] = 1;
    const std::optional<RowsByPlace> rows = rows_by_place(part.dims, part.data.bytes, element_bytes(tensor));
    if (!rows || (calls->has_positions && !are_of_diagonals(part.dims, *rows))) return false;
    if (!rows->repeats() && call_of_value(tensor.name) == "embedding") return false;  // trains as it is
    if (is_expanded) part.name = unused(tensor.name + "/part");
    read_rows(part, text(tensor.name, kRowsSuffix), *rows);
    body_.folded_from[added_.back().name] = note;
    if (is_expanded) add_expand(part.name, tensor.name, tensor);
    restored_.look_ups.push_back(
        {.name = tensor.name, .table = calls->table, .is_repeated = rows->repeats(), .is_assumed = rows->repeats()});
    gone_.insert(tensor.name);
    return true;
  }

  /// Whether one tensor alone is of the parameter, and no node.
  bool is_alone(const std::string& parameter) const {
    const auto noted = noted_.find(parameter);
    return noted != noted_.end() && noted->second == 1 && !names_.contains(parameter) &&
           !readers_of_.is_called(parameter);
  }

  /// Nodes that look the rows up, and give them the order of the tensor's axes.
  void read_rows(const Tensor& tensor, std::string name, const RowsByPlace& rows) {
    Tensor table = tensor, numbers = int64_tensor(unused(text(tensor.name, "/numbers")), rows.numbers);
    table.name = unused(std::move(name));
    table.dims = {rows.count, tensor.dims[rows.axis]};
    table.data = {.slot = -1, .bytes = rows.elements};
    numbers.dims = tensor.dims;
    numbers.dims.erase(numbers.dims.begin() + static_cast<std::ptrdiff_t>(rows.axis));
    const bool is_last = rows.axis + 1 == tensor.dims.size();
    OnnxNode& gather = nodes_.emplace_back();
    gather.op = "Gather";
    gather.inputs = {table.name, numbers.name};
    gather.outputs = {is_last ? tensor.name : unused(text(tensor.name, "/rows"))};
    gather.name = gather.outputs[0];
    if (!is_last) {
      OnnxNode transpose = node_that_moves(gather.outputs[0], std::ssize(tensor.dims), rows.axis);
      transpose.name = tensor.name;
      transpose.outputs = {tensor.name};
      nodes_.push_back(std::move(transpose));
    }
    added_.push_back(std::move(numbers));
    added_.push_back(std::move(table));
  }

  /// The last axis to a place before.
  static OnnxNode node_that_moves(const std::string& value, int64_t rank, size_t to) {
    OnnxNode transpose;
    transpose.op = "Transpose";
    transpose.inputs = {value};
    Attribute& perm = transpose.attributes.emplace_back();
    perm.name = "perm", perm.kind = Attribute::Kind::kInts;
    for (int64_t axis = 0; axis + 1 < rank; ++axis) perm.ints.push_back(axis);
    perm.ints.insert(perm.ints.begin() + static_cast<std::ptrdiff_t>(to), rank - 1);
    return transpose;
  }

  /// The numbers by which the rows were looked up, if the file has them.
  const Tensor* ids_of(const Tensor& rows, const std::vector<std::string>& from) const {
    for (const std::string& name : from)
      if (const auto at = initializers_.find(name); at != initializers_.end()) {
        const Tensor& tensor = body_.initializers[at->second];
        const bool is_whole = tensor.onnx_type == kOnnxInt32 || tensor.onnx_type == kOnnxInt64;
        if (is_whole && std::ranges::equal(tensor.dims, Extents(rows.dims.begin(), rows.dims.end() - 1)))
          return &tensor;
      }
    return nullptr;
  }

  /// The axes all along which the same rows stand, but for that of their elements. Where the file has no numbers that
  /// say so, those of samples were looked up alike; it is assumed of others.
  std::vector<size_t> repeated_axes(const Tensor& tensor, const std::string& elements, const Tensor* ids,
                                    bool& is_assumed) const {
    const std::optional<std::string> numbers = ids == nullptr ? std::nullopt : elements_of_(*ids);
    std::vector<size_t> axes;
    for (size_t axis = 0; axis + 1 < tensor.dims.size(); ++axis) {
      if (tensor.dims[axis] <= 1 || !has_equal_parts(elements, tensor.dims, axis, element_bytes(tensor))) continue;
      if (numbers && !has_equal_parts(*numbers, ids->dims, axis, element_bytes(*ids))) continue;
      is_assumed = is_assumed || (!numbers && (axis > 0 || tensor.dims[0] != fixed_batch()));
      axes.push_back(axis);
    }
    return axes;
  }

  static Tensor first_along(const std::vector<size_t>& axes, const Tensor& of, const std::string& elements) {
    Tensor rows = of;
    rows.data = {.slot = -1, .bytes = {}};
    for (const size_t axis : axes) {
      const std::string& from = axis == axes.front() ? elements : rows.data.bytes;
      rows.data.bytes = first_parts(from, rows.dims, axis, element_bytes(of));
      rows.dims[axis] = 1;
    }
    return rows;
  }

  bool may_separate(const TensorReading& reading, const FoldedTensor& folded) const {
    std::set<std::string> parameters = {folded.parameter};
    for (const MergedValue& value : reading.merged) parameters.insert(value.parameter);
    return std::ranges::all_of(reading.merged, [&](const MergedValue& value) {
      return !names_.contains(value.name) && !parameters.contains(value.name) && !names_.contains(value.parameter) &&
             !rules_.tied(value.parameter).value_or(false) &&
             (value.is_same_line || folded.values != FoldedValues::kShifted);  // another may be added on another line
    });
  }

  /// What is added to a parameter stands in the line of code that reads the sum, or is not known.
  static bool find_added(const OnnxNode& reader, FoldedTensor& folded) {
    if (folded.values != FoldedValues::kShifted) return true;
    const std::string begin = reader.module.empty() ? std::string() : reader.module + ".";
    if (!folded.parameter.starts_with(begin)) return false;
    const std::string_view member = std::string_view(folded.parameter).substr(begin.size());
    const std::optional<double> added = number_added(line_of(reader.code), member);
    folded.added = added.value_or(0);
    return added.has_value();
  }

  /// Gives a value of another parameter, which began with the same elements, nodes of its own.
  void separate(const MergedValue& value, const Tensor& tensor, const Tensor& part, const FoldedTensor& folded,
                const Extents& dims) {
    names_.insert(value.name);
    compute(value.name, tensor, part, folded, dims);
    for (const size_t node : value.readers) std::ranges::replace(body_.nodes[node].inputs, tensor.name, value.name);
  }

  const Tensor* held(const std::string& name) const {
    for (const std::vector<Tensor>* tensors : {&std::as_const(body_.initializers), &added_}) {
      const auto found = std::ranges::find(*tensors, name, &Tensor::name);
      if (found != tensors->end()) return &*found;
    }
    return nullptr;
  }

  /// The dims of the parameter that the tensor was computed from, which is there now; nothing if it cannot be.
  std::optional<Extents> parameter_for(const Tensor& tensor, const FoldedTensor& folded) {
    if (const Tensor* there = held(folded.parameter))
      return holds_same(*there, tensor, folded) ? std::optional(there->dims) : std::nullopt;
    if (names_.contains(folded.parameter)) return std::nullopt;
    Tensor parameter = tensor;
    parameter.name = folded.parameter;
    parameter.dims = folded.dims;
    if (folded.values == FoldedValues::kSame) {
      if (folded.is_turned) parameter.layout = Tensor::Layout::kTransposed;
      if (!folded.is_expanded) restored_.sources.emplace(folded.parameter, tensor);
    } else {
      std::optional<std::string> elements = inverted(tensor, folded);
      if (!elements) return std::nullopt;
      parameter.data = {.slot = -1, .bytes = std::move(*elements)};
    }
    names_.insert(folded.parameter);
    restored_.names.push_back(folded.parameter);
    added_.push_back(std::move(parameter));
    const bool may_have_others = std::ranges::count_if(folded.dims, [](int64_t dim) { return dim > 1; }) > 1;
    if (folded.has_assumed_dims && may_have_others) restored_.reshaped.push_back(folded.parameter);
    return folded.dims;
  }

  std::optional<std::string> inverted(const Tensor& tensor, const FoldedTensor& folded) const {
    const std::optional<std::string> elements = elements_of_(tensor);
    return elements ? elements_before(folded, tensor.onnx_type, *elements) : std::nullopt;
  }

  /// Whether a tensor of the file, or one that was restored, is the one that the other was computed from.
  bool holds_same(const Tensor& parameter, const Tensor& tensor, const FoldedTensor& folded) const {
    if (parameter.onnx_type != tensor.onnx_type || elements_in(parameter.dims) != elements_in(tensor.dims))
      return false;
    if (folded.is_turned && (parameter.dims.size() != 2 || parameter.dims != Extents{tensor.dims[1], tensor.dims[0]}))
      return false;
    if (!folded.is_turned && !folded.has_new_shape && parameter.dims != tensor.dims) return false;
    const std::optional<std::string> there = elements_of_(parameter);
    std::optional<std::string> before = elements_of_(tensor);
    if (!there || !before) return false;
    if (folded.is_turned)
      before = wire::transposed_elements(*before, static_cast<size_t>(tensor.dims[0]), element_bytes(tensor));
    if (folded.values == FoldedValues::kSame) return before == there;
    before = elements_before(folded, tensor.onnx_type, *before);
    const bool is_rounded = folded.values != FoldedValues::kNegated;
    return before && (is_rounded ? are_close(tensor.onnx_type, *before, *there) : before == there);
  }

  static size_t element_bytes(const Tensor& tensor) {
    return static_cast<size_t>(ir::bytes_per_element(*dtype_of_onnx(tensor.onnx_type)));
  }

  void add_nodes(const Tensor& tensor, const std::string& result, const FoldedTensor& folded, const Extents& dims) {
    std::vector<OnnxNode> steps;
    const auto add = [&](const char* op) {
      steps.emplace_back();
      steps.back().op = op;
    };
    if (folded.is_turned) {
      add("Transpose");
      Attribute& perm = steps.back().attributes.emplace_back();
      perm.name = "perm", perm.kind = Attribute::Kind::kInts, perm.ints = {1, 0};
    }
    if (is_exponential(folded.values)) add("Exp");
    if (folded.values == FoldedValues::kSigmoid) add("Sigmoid");
    if (folded.values == FoldedValues::kTanh) add("Tanh");
    if (folded.values == FoldedValues::kNegated) add("Neg");
    if (folded.values == FoldedValues::kShifted) add("Add");
    // Which of the two comes first shows in the sign.
    if (folded.values == FoldedValues::kNegatedExponential)
      steps.emplace(is_below_zero(tensor) ? steps.end() : steps.end() - 1)->op = "Neg";
    if (!folded.is_turned && (steps.empty() || dims != tensor.dims)) add("Reshape");
    std::string value = folded.parameter;
    for (size_t i = 0; i < steps.size(); ++i) {
      OnnxNode& step = steps[i];
      step.inputs.push_back(std::move(value));
      if (step.op == "Reshape") step.inputs.push_back(add_dims(tensor));
      if (step.op == "Add") step.inputs.push_back(add_number(tensor, folded.added));
      value = i + 1 == steps.size() ? result : unused(text(result, "/", i));
      step.outputs.push_back(value);
      step.name = value;
    }
    std::ranges::move(steps, std::back_inserter(nodes_));
  }

  bool is_below_zero(const Tensor& tensor) const {
    const std::optional<std::string> elements = elements_of_(tensor);
    return elements && !elements->empty() && (static_cast<unsigned char>(elements->at(element_bytes(tensor) - 1)) >> 7);
  }

  std::string add_dims(const Tensor& of) {
    return added_.emplace_back(int64_tensor(unused(of.name + "/dims"), of.dims)).name;
  }

  std::string add_number(const Tensor& like, double value) {
    Tensor number;
    number.name = unused(like.name + "/added");
    number.onnx_type = like.onnx_type;
    number.data.bytes = wire::element_bytes(*dtype_of_onnx(like.onnx_type), value);
    added_.push_back(number);
    return number.name;
  }

  /// A name for a new value, or tensor.
  std::string unused(std::string name) { return unused_name(names_, std::move(name)); }

  GraphBody& body_;
  const ExportSignature& signature_;
  const ParameterRules& rules_;
  const ElementsOf& elements_of_;
  Restoration& restored_;
  const MergedReaders readers_of_;
  std::map<std::string, size_t> initializers_;  // the place of each
  std::map<std::string, int64_t> noted_;        // of how many tensors the notes have each name
  std::set<std::string> names_;                 // of all values and tensors
  std::set<std::string> bound_;                 // inputs, outputs, and what bodies of nodes read
  std::vector<Tensor> added_;
  std::vector<OnnxNode> nodes_;  // in front of the others: they read tensors alone
  std::set<std::string> gone_;
};

}  // namespace

void restore_folded(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                    const ElementsOf& elements_of, Restoration& restored) {
  FoldedRestorer(body, signature, rules, elements_of, restored).run();
}

}  // namespace graphpipe::frontend
