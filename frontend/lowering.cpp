#include "frontend/lowering.h"

#include <algorithm>
#include <numeric>

#include "frontend/check_batch.h"
#include "frontend/evaluate.h"
#include "frontend/first_rows.h"
#include "frontend/lower_selection.h"
#include "frontend/lower_widened.h"
#include "frontend/node_context.h"
#include "frontend/repeated_constants.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {

const char* const kExportRecipe =
    "export with torch.onnx.export(model.train(), args, path, dynamo=True, optimize=False, "
    "dynamic_shapes={name: {0: \"batch\"} for each input})";

std::string batch_hint() {
  return text("add --one-sample if the file is one sample as a whole; otherwise ", kExportRecipe);
}

std::string two_samples_hint() {
  return text("give the example inputs two samples or more, and ", kExportRecipe,
              "; or add --one-sample if the file is one sample as a whole");
}

bool is_sequence(const Binding& binding) {
  return !binding.sequence.empty() || binding.is_empty_sequence || binding.stacked.valid();
}

bool has_shape(const Binding& binding) {
  return !is_sequence(binding) && !binding.is_absent && !(binding.offsets && binding.offsets->first == 0);
}

Binding* Lowering::find(const std::string& name) {
  const auto found = bindings_.find(name);
  return found == bindings_.end() ? nullptr : &found->second;
}

void Lowering::bind(const std::string& name, Binding binding) {
  if (binding.name.empty()) binding.name = name;
  bindings_[name] = std::move(binding);
}

void Lowering::bind_value(const std::string& name, ir::ValueId value) {
  Binding binding;
  if (Binding* existing = find(name)) binding = *existing;  // it stays known if it was folded
  binding.type = graph_.value(value).type;
  binding.value = value;
  bind(name, std::move(binding));
}

namespace {

/// The name, or the next of NAME2, NAME3, ... (with the mark before the number) that is free. Loops request a name
/// thousands of times.
template <typename IsFree>
std::string numbered(const std::string& name, std::string_view mark, LastNumbers& last, IsFree is_free) {
  std::string unique = name;
  while (!is_free(unique)) unique = text(name, mark, ++last.try_emplace(name, 1).first->second);
  return unique;
}

}  // namespace

std::string Lowering::unused_name(const std::string& wanted) {
  return numbered(wanted, " ", last_values_, [&](const std::string& name) { return find(name) == nullptr; });
}

void Lowering::bind_alias(const std::string& alias, const std::string& of) {
  Binding* original = find(of);
  GP_CHECK(original != nullptr);
  // The parameter must exist only once, so it is created before the copy.
  if (original->data && !original->value.valid()) (void)value_of(*original, OnnxNode{});
  Binding copy = *original;
  bind(alias, std::move(copy));
}

void Lowering::bind_identity(const std::string& alias, const std::string& of) {
  Binding* original = find(of);
  GP_CHECK(original != nullptr);
  const bool is_parameter = original->data.has_value() && ir::is_floating(original->type.dtype);
  if (!is_parameter) return bind_alias(alias, of);
  const std::optional<bool> wanted = rules_.tied(alias);
  const bool tied = wanted.value_or(!is_parameter_name(alias));
  if (!tied) {
    Binding copy = *original;
    copy.value = {};
    copy.name = alias;
    bind(alias, std::move(copy));
    notes_.push_back({.code = Code::kLostByExport,
                      .severity = Severity::kNote,
                      .origin = ModelText(alias),
                      .message = text("the file merges it with ", quoted(ModelText(of)),
                                      ", whose values were equal; it trains on its own"),
                      .hint = "write 'PATTERN tie' in the parameter file if the model shares it"});
    return;
  }
  bind_alias(alias, of);
  // Otherwise it is the name of a value that the exporter made.
  if (!wanted) return;
  const auto param = param_of_value_.find(find(of)->value);
  if (param != param_of_value_.end()) graph_.param(param->second).aliases.push_back(ModelText(alias));
}

Result<Binding> Lowering::tensor_binding(const Tensor& tensor, const ModelText& owner) {
  Binding binding;
  binding.name = tensor.name;
  GP_TRY(SourcedTensor sourced, tensors_.locate(tensor, tensor.name.empty() ? owner : ModelText(tensor.name)));
  binding.type = sourced.type;
  if (sourced.bytes) binding.known = decode_known(binding.type.dtype, binding.type.shape, *sourced.bytes);
  binding.leaf = ir::is_floating(binding.type.dtype) || !binding.known;
  if (binding.leaf) binding.data = std::move(sourced.data);
  return binding;
}

void Lowering::poison(const OnnxNode& node) {
  for (const std::string& output : node.outputs) {
    Binding binding;
    binding.poisoned = true;
    if (!output.empty()) bind(output, std::move(binding));
  }
}

ModelText Lowering::param_name(const std::string& name) {
  const auto is_free = [&](const std::string& unique) { return param_names_.insert(unique).second; };
  return ModelText(numbered(name, ".", last_params_, is_free));
}

void Lowering::forget(const std::vector<OnnxNode>& nodes) {
  for (const OnnxNode& node : nodes) {
    for (const std::string& output : node.outputs) bindings_.erase(output);
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) forget(inner.nodes);
  }
}

Result<ir::ValueId> Lowering::value_of(Binding& binding, const OnnxNode& reader) {
  if (binding.selected || counts_places(binding.type.shape))
    return refuse_selection(NodeContext(*this, reader), "reads a tensor whose size depends on a mask");
  if (binding.value.valid()) return binding.value;
  if (binding.first_rows_of.valid()) return refuse_first_rows(NodeContext(*this, reader));
  if (binding.data) {
    ir::Param param{.name = param_name(binding.name), .kind = ir::ParamKind::kConstant, .data = *binding.data};
    const ir::ParamId id = graph_.add_param(std::move(param), {.type = binding.type});
    param_origins_[id] = binding.origin;
    binding.value = graph_.param(id).value;
    param_of_value_[binding.value] = id;
    return binding.value;
  }
  if (is_sequence(binding))
    return NodeContext(*this, reader)
        .problem(Code::kUnsupportedOp, "reads a sequence of tensors as if it were one",
                 "take its tensors by constant positions, or join them by torch.cat or torch.stack");
  if (binding.is_absent)
    return NodeContext(*this, reader)
        .problem(Code::kBadModel, "reads an optional value that is not there", "leave out what reads it");
  if (binding.offsets)
    return NodeContext(*this, reader)
        .problem(Code::kUnsupportedOp, "reads the offsets of bags, of which there is one more than samples",
                 "give nn.EmbeddingBag ids of shape [samples, ids] instead of offsets");
  GP_CHECK(binding.known.has_value());  // only a type is bound if nothing reads an element
  GP_TRY(binding.value, make_constant(binding, reader));
  return binding.value;
}

Result<ir::ValueId> Lowering::make_constant(Binding& binding, const OnnxNode& reader) {
  const Known& known = *binding.known;
  const bool depends_on_batch =
      std::any_of(known.elements.begin(), known.elements.end(), [](const Number& n) { return !n.is_fixed(); }) ||
      std::any_of(known.shape.begin(), known.shape.end(), [](ir::Dim dim) { return !dim.is_fixed(); });
  if (depends_on_batch && counts_places(known.elements[0])) return make_count(known, reader);
  if (depends_on_batch) return make_filled(binding, reader);
  // A double represents integers up to 2^53 exactly.
  const bool fills = known.uniform && (ir::is_floating(known.dtype) || std::abs(known.elements[0].factor()) <= 9e15);
  if (!fills && !known_count(known.shape))
    return NodeContext(*this, reader)
        .problem(Code::kLimitExceeded, "reads a large tensor of integers beyond 2^53", "use smaller numbers");
  ir::DataSource data = ir::InlineData{};
  if (fills) data = ir::FilledData{known.elements[0].factor()};
  else data = ir::InlineData{encode_known(known)};
  ir::Param param{.name = param_name(binding.name), .kind = ir::ParamKind::kConstant, .data = std::move(data)};
  const ir::ParamId id = graph_.add_param(std::move(param), {.type = binding.type});
  param_origins_[id] = ParamOrigin::kFolded;
  return graph_.param(id).value;
}

Result<ir::ValueId> Lowering::make_count(const Known& known, const OnnxNode& reader) {
  NodeContext context(*this, reader);
  const Number& number = known.elements[0];
  const size_t index = selection_of(number.power);
  // A high power of the batch looks like a number of places of a nonexistent mask.
  if (index >= selections_.size()) return refuse_selection(context, "reads a power of the batch that is too high");
  const Selection& selection = selections_[index];
  if (known.elements.size() != 1 || number.power != picked_places(index, selection.box).power)
    return refuse_selection(context, "reads a number that depends on a mask");
  const std::string type(ir::dtype_name(known.dtype));
  std::vector<int64_t> axes(selection.box.size());
  std::iota(axes.begin(), axes.end(), 0);
  GP_TRY(const auto ones, context.emit("Cast", {selection.mask}, {{"to", type}}));
  GP_TRY(const auto sum, context.emit("ReduceSum", ones, {{"axes", axes}, {"keepdims", int64_t{0}}}));
  GP_TRY(const ir::ValueId factor, context.scalar(number.factor(), known.dtype));
  GP_TRY(const auto product, context.emit("Mul", {sum[0], factor}, {}));
  GP_TRY(const auto shaped, context.emit("Reshape", {product[0]}, {{"shape", known.shape}}));
  return shaped[0];
}

Result<ir::ValueId> Lowering::make_filled(const Binding& binding, const OnnxNode& reader) {
  NodeContext context(*this, reader);
  const Known& known = *binding.known;
  const bool scaled = known.uniform && known.elements[0].power == 1;
  if (!known.uniform || (!known.elements[0].is_fixed() && !scaled))
    return context.problem(Code::kUnresolvedShape,
                           text("reads ", quoted(ModelText(binding.name)), " as data, which depends on the batch size"),
                           "compute it per sample, or from the number of samples alone");
  // Doubles hold every number of samples; floats do not.
  const bool counts = scaled && !ir::is_floating(known.dtype);
  const std::string type(ir::dtype_name(known.dtype));
  ir::Attributes attributes{{"shape", known.shape},
                            {"value", known.elements[0].factor()},
                            {"to", counts ? std::string(ir::dtype_name(ir::DType::kFloat64)) : type}};
  GP_TRY(std::vector<ir::ValueId> filled, context.emit("Full", {}, std::move(attributes)));
  if (!scaled) return filled.front();
  GP_TRY(std::vector<ir::ValueId> product, context.emit("ScaleBySamples", std::move(filled), {}));
  if (!counts) return product.front();
  GP_TRY(const std::vector<ir::ValueId> whole, context.emit("Cast", std::move(product), {{"to", type}}));
  return whole.front();
}

bool Lowering::inputs_are_sound(const OnnxNode& node) {
  return std::none_of(node.inputs.begin(), node.inputs.end(), [this](const std::string& name) {
    return !name.empty() && (find(name) == nullptr || find(name)->poisoned);
  });
}

namespace {

/// Shape and Size only need the type of their input.
std::optional<Known> shape_of(const OnnxNode& node, const ir::TensorType& type) {
  if (node.op == "Size") {
    const std::optional<ir::Dim> count = ir::element_count(type.shape);
    if (!count) return std::nullopt;
    return Known::scalar(ir::DType::kInt64, Number::of_dim(*count));
  }
  const auto rank = static_cast<int64_t>(type.shape.size());
  const auto clamp = [rank](const Attribute* attribute, int64_t fallback) {
    const int64_t at = attribute == nullptr ? fallback : attribute->i;
    return std::clamp<int64_t>(at < 0 ? std::max(at, -rank) + rank : at, 0, rank);
  };
  std::vector<Number> numbers;
  for (int64_t i = clamp(node.find("start"), 0); i < clamp(node.find("end"), rank); ++i)
    numbers.push_back(Number::of_dim(type.shape[static_cast<size_t>(i)]));
  return Known::list(std::move(numbers));
}

bool may_be_weight(const Known& filled) {
  return ir::is_floating(filled.dtype) && !filled.shape.empty() && filled.elements[0].is_fixed() &&
         std::all_of(filled.shape.begin(), filled.shape.end(), [](ir::Dim dim) { return dim.is_fixed(); });
}

}  // namespace

bool Lowering::fold(const OnnxNode& node) {
  if (node.outputs.size() != 1 || !node.domain.empty() || node.inputs.empty()) return false;
  std::optional<Known> result;
  bool leaf = false, from_shapes = false;
  if ((node.op == "Shape" || node.op == "Size") && has_shape(*find(node.inputs[0]))) {
    from_shapes = true;
    result = shape_of(node, find(node.inputs[0])->type);
  } else {
    std::vector<const Known*> inputs;
    for (const std::string& name : node.inputs) {
      const Binding* input = name.empty() ? nullptr : find(name);
      // Evaluation rules treat unknown inputs as absent, which they are not.
      const bool is_needed = !name.empty() && !inputs.empty() && node.op != "CastLike";
      if (is_needed && (input == nullptr || !input->known)) return false;
      inputs.push_back(input != nullptr && input->known ? &*input->known : nullptr);
      leaf = leaf || (input != nullptr && input->leaf);
      from_shapes = from_shapes || (input != nullptr && input->from_shapes);
    }
    if (node.op == "CastLike" && inputs.size() == 2 && inputs[0] != nullptr) {
      // Only the type of the second input matters, and that is always known.
      const Known like = Known::scalar(find(node.inputs[1])->type.dtype, {});
      inputs[1] = &like;
      leaf = find(node.inputs[0])->leaf;
      result = evaluate(node, inputs);
    } else {
      result = evaluate(node, inputs);
    }
  }
  if (!result) return false;
  if (node.op == "Range") leaf = false;  // bounds are not weights
  if (node.op == "ConstantOfShape" || node.op == "Expand") suspect_batch(node, result->shape);
  Binding binding;
  binding.type = {result->dtype, result->shape};
  binding.leaf = leaf;
  binding.from_shapes = from_shapes;
  if (node.op == "ConstantOfShape" && !from_torch_ && !from_shapes && may_be_weight(*result)) {
    // Graphs without weights write each weight as a filled tensor: it becomes a parameter. PyTorch also writes masks
    // this way, as does the body of Attention, for which it reads the sizes of values.
    binding.data = ir::FilledData{result->elements[0].real};
    binding.origin = ParamOrigin::kConstantNode;
    binding.leaf = true;
  }
  binding.known = std::move(result);
  bind(node.outputs[0], std::move(binding));
  return !leaf;
}

namespace {

/// What to do about operators that exporters are known to write.
std::string_view hint_for(const OnnxNode& node) {
  const std::string& op = node.op;
  if (node.domain == "com.microsoft" || node.domain.starts_with("com.ms"))
    return "this file was optimised for inference; export the original model again with torch.onnx.export";
  if (!node.domain.empty()) return "express it with operators of the standard domain, or register a function for it";
  const bool has_cache = node.inputs.size() > 4;
  if (op == "Attention" && has_cache)
    return "forms with a padded cache, or with a past under a causal mask, are for inference: export without the cache";
  if (op == "NonMaxSuppression")
    return "how many boxes it keeps depends on data, and no gradient goes through the choice: export the scores and "
           "boxes as they leave the network";
  if (op == "Unique")
    return "the size of its output depends on data, so no plan has one for it: train the part before it";
  if (op == "ImageDecoder")
    return "the size of a picture is known when it has been decoded: decode pictures before the model";
  return "write this part of the model with other operators; the folder ops/ of GraphPipe's source lists those it has";
}

}  // namespace

void Lowering::report_unsupported(const OnnxNode& node) {
  // Each op once: a model with 300 nodes of one unknown op has one problem.
  if (!reported_ops_.insert(node.domain + "." + node.op).second) return;
  const std::string name = quoted(ModelText(node.domain.empty() ? node.op : node.domain + "." + node.op));
  problems_.push_back({.code = Code::kUnsupportedOp,
                       .origin = node_label(node),
                       .message = text("the operator ", name, " is not supported"),
                       .hint = std::string(hint_for(node))});
}

void Lowering::suspect_batch(const OnnxNode& node, const ir::Shape& constant) {
  constexpr size_t kMaxSuspects = 10'000;
  const bool large = std::any_of(constant.begin(), constant.end(), [](ir::Dim dim) { return dim.factor > 1; });
  if (large && suspects_.size() < kMaxSuspects) suspects_.emplace_back(node_label(node), constant);
}

std::string Lowering::suspects(int64_t batch) const {
  constexpr size_t kNamed = 3;
  const auto may_hold = [batch](const ir::Shape& constant) {
    if (batch == 0) return true;
    const bool holds = std::find(constant.begin(), constant.end(), ir::Dim::fixed(batch)) != constant.end();
    const bool leads = constant[0].is_fixed() && constant[0].factor > 0 && constant[0].factor % batch == 0;
    return batch > 1 && (holds || leads);
  };
  std::string names;
  size_t count = 0;
  for (const auto& [label, constant] : suspects_) {
    if (!may_hold(constant) || ++count > kNamed) continue;
    names += text(count == 1 ? "may hold it, first of all those of " : ", ", quoted(label));
  }
  return names.empty() ? "here may hold it" : names;
}

namespace {

/// Shapes that must agree axis by axis: those of operands that broadcast or are concatenated, and for a Reshape the
/// numbers of elements before and after. None for other operators.
std::vector<ir::Shape> operands_of(Lowering& lowering, const OnnxNode& node) {
  std::vector<ir::Shape> shapes;
  const ops::Dependence dependence = ops::dependence_of(node.op);
  const bool broadcasts = dependence == ops::Dependence::kElement || dependence == ops::Dependence::kRepeated;
  if (!broadcasts && node.op != "Concat" && node.op != "Reshape") return shapes;
  for (const std::string& name : node.inputs)
    if (const Binding* binding = name.empty() ? nullptr : lowering.find(name)) shapes.push_back(binding->type.shape);
  if (node.op != "Reshape" || shapes.size() != 2) return shapes;
  const Binding* target = lowering.find(node.inputs[1]);
  const std::optional<ir::Shape> dims = target->known ? as_dims(*target->known) : std::nullopt;
  const std::optional<ir::Dim> before = ir::element_count(shapes[0]);
  const bool whole =
      dims && std::all_of(dims->begin(), dims->end(), [](ir::Dim dim) { return dim.is_fixed() && dim.factor > 0; });
  const std::optional<ir::Dim> after = whole ? ir::element_count(*dims) : std::nullopt;
  if (!before || !after) return {};
  return {{*before}, {*after}};
}

/// Whether the numbers of elements before and after agree with one sample alone.
bool meet_with_one_sample(const std::vector<ir::Shape>& counts) {
  return counts.size() == 2 && !counts[0][0].is_fixed() && counts[1][0].is_fixed() &&
         ir::size_at(counts[0][0], Samples(1)) == counts[1][0].factor;
}

}  // namespace

void Lowering::blame_batch(const OnnxNode& node, Diagnostic& problem) {
  if (problem.code != Code::kBadModel && problem.code != Code::kUnresolvedShape && problem.code != Code::kBatchNotFound)
    return;
  const std::vector<ir::Shape> operands = operands_of(*this, node);
  if (traced_batch_ == 1 || (traced_batch_ == 0 && node.op == "Reshape" && meet_with_one_sample(operands))) {
    problem.message = text("the export's example had a batch of 1, which a constant here may hold: ", problem.message);
    problem.hint = two_samples_hint();
  } else if (traced_batch_ > 0) {
    problem.message += text("; the file fixes the batch at ", traced_batch_, ", a constant ", suspects(traced_batch_));
    problem.hint = batch_hint();
  } else if (const std::optional<int64_t> baked = baked_batch(operands)) {
    problem.message += text("; the export had a batch of ", *baked, ", a constant ", suspects(*baked));
    problem.hint = batch_hint();
  } else {
    return;
  }
  problem.code = Code::kBatchNotFound;
}

Status Lowering::lower_sound(const OnnxNode& as_written) {
  GP_TRY(const std::optional<OnnxNode> changed, with_own_constants(*this, as_written));
  const OnnxNode& node = changed ? *changed : as_written;
  NodeContext context(*this, node);
  const Handler handler = find_handler(node.op);
  const bool selects = reads_selection(*this, node);
  const Handler lower_it = selects ? lower_on_selection : handler != nullptr ? handler : lower_plain;
  return !selects && needs_widening(*this, node) ? lower_widened(*this, node, lower_it) : lower_it(context);
}

void Lowering::lower(const OnnxNode& node) {
  const bool sound = inputs_are_sound(node);
  if (sound && fold(node)) return;
  // Checked for every node, even after a failed one.
  if (!is_supported(node)) report_unsupported(node);
  if (!sound || !is_supported(node)) return poison(node);
  const Status status = lower_sound(node);
  if (status.ok()) return;
  for (Diagnostic problem : status.problems()) {
    if (problem.origin.empty()) problem.origin = node_label(node);
    blame_batch(node, problem);
    problems_.push_back(std::move(problem));
  }
  poison(node);
}

void Lowering::note_reads(const GraphBody& body) {
  for (const OnnxNode& node : body.nodes) {
    read_.insert(node.inputs.begin(), node.inputs.end());
    read_by_nodes_.insert(node.inputs.begin(), node.inputs.end());
    if (node.op != "Shape" && node.op != "Size") read_as_data_.insert(node.inputs.begin(), node.inputs.end());
    for (const Attribute& attribute : node.attributes)
      for (const GraphBody& inner : attribute.graph) note_reads(inner);
  }
  for (const ValueInfo& output : body.outputs) {
    read_.insert(output.name);
    read_as_data_.insert(output.name);
  }
}

void Lowering::run(const std::vector<OnnxNode>& nodes) {
  for (const OnnxNode& node : nodes) lower(node);
}

}  // namespace graphpipe::frontend
