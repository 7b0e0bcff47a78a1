#include "frontend/parameters.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "frontend/lost_by_export.h"
#include "frontend/mask_values.h"
#include "frontend/parameter_names.h"
#include "frontend/restore_parameters.h"
#include "frontend/tied_names.h"
#include "frontend/wave_table.h"
#include "ops/op_def.h"

namespace graphpipe::frontend {

std::string_view role_name(ParameterRole role) {
  switch (role) {
    case ParameterRole::kWeight:
      return "weight";
    case ParameterRole::kBias:
      return "bias";
    case ParameterRole::kScale:
      return "scale";
    case ParameterRole::kEmbedding:
      return "embedding";
    case ParameterRole::kTable:
      return "table";
    case ParameterRole::kStatistic:
      return "statistic";
    case ParameterRole::kConstant:
      return "constant";
  }
  return "";
}

std::string ExportSignature::tensor_of(std::string_view argument) const {
  if (!argument.starts_with('%')) return {};
  const auto named = tensor_of_input.find(std::string(argument.substr(1)));
  return named == tensor_of_input.end() ? std::string() : named->second;
}

bool ExportSignature::lists_parameter(const std::string& name) const {
  const auto listed = is_parameter.find(name);
  return listed != is_parameter.end() && listed->second;
}

ExportSignature read_signature(const std::map<std::string, std::string>& metadata) {
  ExportSignature signature;
  for (const auto& [key, value] : metadata) {
    if (!key.ends_with("graph_signature")) continue;
    std::istringstream lines(value);
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with(": USER_OUTPUT")) signature.outputs.push_back(line.substr(0, line.find(':')));
      const size_t open = line.find("target='");
      const size_t close = line.rfind('\'');
      const bool parameter = line.find(": PARAMETER") != std::string::npos;
      if (open == std::string::npos || close < open + 8 || (!parameter && line.find(": BUFFER") == std::string::npos))
        continue;
      std::string name = line.substr(open + 8, close - open - 8);
      signature.is_parameter[name] = parameter;
      signature.tensor_of_input[line.substr(0, line.find(':'))] = std::move(name);
    }
  }
  return signature;
}

namespace {

using Role = ParameterRole;

/// A use of a tensor: its role in one input slot, and whether that slot has no other meaning.
struct Use {
  Role role = Role::kConstant;
  bool certain = false;
  std::string_view op;
};

constexpr std::string_view kWhere = "Where", kPower = "Pow";

size_t wide_dims(const ir::Shape& shape) {
  return static_cast<size_t>(
      std::count_if(shape.begin(), shape.end(), [](ir::Dim dim) { return dim != ir::Dim::fixed(1); }));
}

Use use_in_slot(const ir::Graph& graph, const ir::Node& node, size_t input) {
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry != nullptr && input < entry->roles.size() && entry->roles[input] != Role::kConstant)
    return {entry->roles[input], true, entry->name};
  const size_t wide = wide_dims(graph.value(node.inputs[input]).type.shape);
  if (node.op == "Add" || node.op == "Sum") return {wide <= 1 ? Role::kBias : Role::kTable, false, "Add"};
  if (node.op == "Mul" && wide <= 1) return {Role::kScale, false, "Mul"};
  // A temperature, or a learned bound.
  if (node.op == "Div" && input == 1 && wide == 0) return {Role::kScale, false, "Div"};
  if ((node.op == "Max" || node.op == "Min") && wide == 0)
    return {Role::kScale, false, node.op == "Max" ? "Max" : "Min"};
  if (node.op == "Concat" || node.op == "Expand") return {Role::kTable, false, "Concat"};
  // The token that stands for what a mask hides, and the power of a generalised mean (GeM).
  if (node.op == "Where" && input > 0 && wide == 1) return {Role::kTable, false, kWhere};
  if (node.op == "Pow" && input == 1 && wide <= 1) return {Role::kScale, false, kPower};
  return {Role::kConstant, false, {}};
}

/// Of these only a name that may be one of the module's state tells that they train.
bool is_weak(const Use& use) { return use.op == kWhere || use.op == kPower; }

/// Values computed from floating parameters, and the parameters themselves.
IdSet<ir::ValueId> made_from_parameters(const ir::Graph& graph, const ParameterContext& context) {
  IdSet<ir::ValueId> made(graph.value_count());
  for (const auto& [id, origin] : context.origins)
    if (origin != ParamOrigin::kFolded && ir::is_floating(graph.value(graph.param(id).value).type.dtype))
      made.insert(graph.param(id).value);
  // The importer appends a node after those that it reads.
  for (const ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    const bool reads = std::ranges::any_of(node.inputs, [&](ir::ValueId v) { return v.valid() && made.contains(v); });
    if (!reads) continue;
    for (const ir::ValueId output : node.outputs) made.insert(output);
  }
  return made;
}

/// A product with only constants is a constant: the frequencies of rotary embeddings times the positions.
bool multiplies_constants(const IdSet<ir::ValueId>& from_parameters, const ir::Node& node, size_t input) {
  if (node.op != "MatMul" && node.op != "Einsum") return false;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (i != input && node.inputs[i].valid() && from_parameters.contains(node.inputs[i])) return false;
  return true;
}

/// A gate passes its input through unchanged, though samples may determine where its gradient goes.
bool computes_from_weights(const ir::Graph& graph, const ir::Node& node) {
  return node.op == "Gate" || graph.value(node.outputs[0]).batch == ir::BatchKind::kNone;
}

/// A statistic stays one whoever else reads it, and the slot of a layer takes precedence over a guess.
int rank_of(const Use& use) {
  if (use.op.data() == nullptr) return INT_MIN;
  if (use.role == Role::kStatistic) return 100;
  if (is_weak(use)) return 0;
  return (use.certain ? 50 : 0) + (use.role == Role::kConstant ? 0 : 10) - static_cast<int>(use.role);
}

/// For each value the strongest use by nodes that see samples, directly or through nodes that compute from weights
/// alone; the first among equals.
IdMap<ir::ValueId, Use> strongest_uses(const ir::Graph& graph, const IdSet<ir::ValueId>& from_parameters) {
  IdMap<ir::ValueId, Use> strongest(graph.value_count());
  const auto consider = [&](ir::ValueId value, const Use& use) {
    if (rank_of(use) >= rank_of(strongest[value])) strongest[value] = use;
  };
  // Visits readers before what they read: the importer appends a node after those that it reads.
  for (size_t place = graph.node_count(); place-- > 0;) {
    const ir::NodeId id(place);
    const ir::Node& node = graph.node(id);
    const bool weights_only = computes_from_weights(graph, node);
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (!node.inputs[i].valid()) continue;
      for (const ir::ValueId output : node.outputs)
        if (weights_only && ir::is_floating(graph.value(output).type.dtype))
          consider(node.inputs[i], strongest[output]);
      const Use use = use_in_slot(graph, node, i);
      if (!weights_only || (use.certain && !multiplies_constants(from_parameters, node, i)))
        consider(node.inputs[i], use);
    }
  }
  return strongest;
}

/// Whether the name of an initializer in a torch file may be an entry of the module's state: the exporter's own names
/// have a slash or a colon, or are numbers.
bool names_module_state(const std::string& name) {
  return !is_anonymous(name) && name.find_first_of("/:") == std::string::npos &&
         name.find_first_not_of("0123456789") != std::string::npos;
}

class Decider {
 public:
  Decider(ir::Graph& graph, const ParameterContext& context, Diagnostics& notes)
      : graph_(graph),
        context_(context),
        notes_(notes),
        readers_(ir::readers_of_values(graph)),
        uses_(strongest_uses(graph, made_from_parameters(graph, context))) {
    for (const ir::ParamId id : graph.param_ids()) {
      const ir::Param& param = graph.param(id);
      const auto& [layer, last] = split_name(param.name.raw());
      if ((last == "running_mean" || last == "running_var") && uses_[param.value].role != Role::kStatistic)
        fixed_norms_.emplace(layer);
    }
  }

  std::optional<ParameterDecision> decide(ir::ParamId id);
  /// What it came across beside the decisions.
  DecidedTensors& tensors() { return tensors_; }

 private:
  bool holds_numbers(const ir::Param& param, const Use& use) const;
  bool has_fixed_statistics(const ir::Param& param, ParamOrigin origin) const;
  bool is_guessed(const ir::Param& param, const Use& use, ParamOrigin origin) const;
  void by_default(ParameterDecision& decision, const ir::Param& param, const Use& use, ParamOrigin origin);
  bool may_be_state(const ir::Param& param, ParamOrigin origin) const;
  bool may_be_fixed(const ir::Param& param) const;
  bool is_constant_of_code(const ir::Param& param, const Use& use, ParamOrigin origin) const;
  void by_rules(ParameterDecision& decision);
  bool only_looked_up(ir::ValueId value) const;

  ir::Graph& graph_;
  const ParameterContext& context_;
  Diagnostics& notes_;
  IdMap<ir::ValueId, std::vector<ir::NodeId>> readers_;
  IdMap<ir::ValueId, Use> uses_;
  std::set<std::string, std::less<>> fixed_norms_;  // layers with statistics that no BatchNormalization reads
  DecidedTensors tensors_;
};

void Decider::by_default(ParameterDecision& decision, const ir::Param& param, const Use& use, ParamOrigin origin) {
  const auto listed = context_.signature.is_parameter.find(param.name.raw());
  if (use.role == Role::kStatistic) {
    decision.reason = "running statistic";
  } else if (listed != context_.signature.is_parameter.end()) {
    decision.trainable = listed->second;
    if (listed->second && !context_.says_what_trains && may_be_fixed(param)) tensors_.waves.push_back(param.name);
    decision.reason =
        listed->second ? "a parameter in the exporter's signature" : "a buffer in the exporter's signature";
  } else if (context_.look_ups.contains(param.name.raw())) {
    decision.trainable = true;
    decision.reason = "rows of a table that were looked up beforehand";
  } else if (!context_.signature.is_parameter.empty() && origin == ParamOrigin::kInitializer &&
             !(use.certain && is_anonymous(param.name.raw()))) {
    decision.reason = "not in the exporter's signature";
  } else if (has_fixed_statistics(param, origin)) {
    decision.reason = "of a normalisation with fixed statistics";
    tensors_.fixed.push_back(param.name);
  } else if (use.role == Role::kConstant) {
    decision.reason = "read by no layer";
  } else if (holds_numbers(param, use)) {
    decision.reason = "a table of numbers, which no embedding is";
  } else if (ir::element_count(graph_.value(param.value).type.shape) == ir::Dim::fixed(1) && !use.certain) {
    decision.trainable = may_be_state(param, origin);
    decision.reason = decision.trainable ? "a scalar with a name of its own" : "a scalar";
    if (is_guessed(param, use, origin)) tensors_.guessed.push_back(param.name);
  } else if (!use.certain && holds_mask_values(param.data, graph_.value(param.value).type.dtype, context_.model_path,
                                               context_.trusted_root)) {
    decision.reason = "a mask";
  } else if (is_constant_of_code(param, use, origin)) {
    decision.reason = "a constant of the module's code";
  } else if (may_be_state(param, origin) && may_be_fixed(param)) {
    decision.reason = "a table of sines and cosines";
    tensors_.waves.push_back(param.name);
  } else {
    decision.trainable = true;
    decision.reason = text(role_name(use.role), " of ", use.op);
    if (is_guessed(param, use, origin)) tensors_.guessed.push_back(param.name);
  }
}

/// A layer that adds and multiplies its running statistics itself never updates them: its scale and shift are buffers
/// as well (torchvision's and transformers' FrozenBatchNorm2d).
bool Decider::has_fixed_statistics(const ir::Param& param, ParamOrigin origin) const {
  return may_be_state(param, origin) && fixed_norms_.contains(split_name(param.name.raw()).first);
}

/// Neither a slot that has no other meaning nor a customary name says that it trains. Powers have no customary names:
/// the gamma of a focal loss is no scale.
bool Decider::is_guessed(const ir::Param& param, const Use& use, ParamOrigin origin) const {
  return !use.certain && may_be_state(param, origin) && (is_weak(use) || !is_parameter_name(param.name.raw())) &&
         !context_.rules.trains(param.name.raw());
}

/// torch writes numbers of the code as constants or under names with a slash or colon; an initializer with a plain name
/// is an entry of the module's state, such as CLIP's logit scale.
bool Decider::may_be_state(const ir::Param& param, ParamOrigin origin) const {
  return context_.from_torch && origin == ParamOrigin::kInitializer && context_.signature.is_parameter.empty() &&
         names_module_state(param.name.raw());
}

/// A table of which no user says whether it trains, and modules with such tables mostly do not train them.
bool Decider::may_be_fixed(const ir::Param& param) const {
  return !context_.rules.trains(param.name.raw()) &&
         holds_waves(graph_.value(param.value).type, param.data, context_.model_path, context_.trusted_root);
}

/// torch writes parameters as initializers. Its constants are numbers of the code: places that a small network turns
/// into a bias (Swin v2), or the ones and zeros of the InstanceNormalization inside a GroupNorm, which an optimiser
/// turns into initializers too. Filled tensors stand for weights in models without them.
bool Decider::is_constant_of_code(const ir::Param& param, const Use& use, ParamOrigin origin) const {
  if (!context_.signature.is_parameter.empty() && param.name.raw().ends_with(kConstantSuffix)) return true;
  if (!context_.from_torch) return false;
  const bool is_weight = use.role == Role::kWeight || use.role == Role::kEmbedding;
  if (origin == ParamOrigin::kConstantNode) return !is_weight || !std::holds_alternative<ir::FilledData>(param.data);
  return !is_weight && use.op == "InstanceNormalization" && is_anonymous(param.name.raw());
}

void Decider::by_rules(ParameterDecision& decision) {
  std::vector<ModelText> names = decision.aliases;
  names.push_back(decision.name);  // the parameter's own name comes last and takes precedence
  for (const ModelText& name : names)
    if (const std::optional<bool> trains = context_.rules.trains(name.raw())) {
      if (decision.role == Role::kStatistic && *trains) {
        notes_.push_back({.code = Code::kBadParameter,
                          .severity = Severity::kWarning,
                          .origin = name,
                          .message = "a running statistic does not train by gradients",
                          .hint = "leave it out of the parameter file"});
        continue;
      }
      decision.trainable = *trains;
      decision.reason = text(*trains ? "trained" : "frozen", " by pattern ", context_.rules.pattern_for(name.raw()));
    }
}

bool Decider::only_looked_up(ir::ValueId value) const {
  const std::vector<ir::NodeId>& readers = readers_[value];
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](ir::NodeId id) {
    const ir::Node& node = graph_.node(id);
    return node.op == "Gather" && node.attributes.get_int("axis", 0) == 0 && node.inputs[0] == value;
  });
}

std::optional<ParameterDecision> Decider::decide(ir::ParamId id) {
  ir::Param& param = graph_.param(id);
  const auto origin = context_.origins.find(id);
  const bool floating = ir::is_floating(graph_.value(param.value).type.dtype);
  if (origin == context_.origins.end() || origin->second == ParamOrigin::kFolded || !floating) return std::nullopt;
  const Use use = is_weak(uses_[param.value]) && !may_be_state(param, origin->second) ? Use{} : uses_[param.value];
  ParameterDecision decision{.param = id, .name = param.name, .aliases = param.aliases, .role = use.role};
  by_default(decision, param, use, origin->second);
  by_rules(decision);
  if (holds_numbers(param, use) && !decision.trainable && !context_.rules.trains(param.name.raw()))
    tensors_.numbers.push_back(param.name);
  if (may_be_state(param, origin->second) && !decision.trainable && decision.role == Role::kConstant &&
      !context_.rules.trains(param.name.raw()))
    tensors_.unread.push_back(param.name);
  const auto listed = context_.signature.is_parameter.find(param.name.raw());
  const bool is_weight = decision.trainable || (use.certain && !is_constant_of_code(param, use, origin->second)) ||
                         (listed != context_.signature.is_parameter.end() && listed->second);
  const bool is_folded = origin->second == ParamOrigin::kInitializer && is_anonymous(param.name.raw()) &&
                         (use.role == Role::kScale || use.role == Role::kBias) &&
                         ir::element_count(graph_.value(param.value).type.shape) != ir::Dim::fixed(1);
  if (is_folded && !decision.trainable && !is_constant_of_code(param, use, origin->second))
    tensors_.folded.push_back(id);
  param.trainable = decision.trainable;
  param.kind = use.role == Role::kStatistic ? ir::ParamKind::kBuffer
               : is_weight                  ? ir::ParamKind::kWeight
                                            : ir::ParamKind::kConstant;
  param.gradient_by_rows = param.trainable && only_looked_up(param.value);
  return decision;
}

/// A table of single numbers is a buffer of the module, such as the noise levels of a diffusion: embeddings have rows.
bool Decider::holds_numbers(const ir::Param& param, const Use& use) const {
  return context_.from_torch && context_.signature.is_parameter.empty() && use.role == Role::kEmbedding &&
         graph_.value(param.value).type.shape.size() == 1;
}

}  // namespace

bool scalar_trains(const std::string& name, const ParameterRules& rules, const ExportSignature& signature,
                   bool from_torch) {
  if (const std::optional<bool> ruled = rules.trains(name)) return *ruled;
  if (const auto listed = signature.is_parameter.find(name); listed != signature.is_parameter.end())
    return listed->second;
  return from_torch && signature.is_parameter.empty() && names_module_state(name);
}

std::vector<ParameterDecision> decide_parameters(ir::Graph& graph, const ParameterContext& context,
                                                 Diagnostics& notes) {
  add_tied_names(graph, context.rules);
  Decider decider(graph, context, notes);
  DecidedTensors& tensors = decider.tensors();
  for (ir::ParamId id : graph.param_ids())
    if (std::optional<ParameterDecision> decision = decider.decide(id))
      tensors.decisions.push_back(std::move(*decision));
  report_losses(graph, context, tensors, notes);
  return std::move(tensors.decisions);
}

}  // namespace graphpipe::frontend
