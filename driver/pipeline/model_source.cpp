#include "driver/pipeline/model_source.h"

#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "files/text_file.h"
#include "passes/losses/registry.h"
#include "passes/pipeline.h"
#include "scheduler/policies/policies.h"
#include "wire/data_file.h"

namespace graphpipe::driver {

Result<frontend::SymbolBinding> parse_binding(const std::string& flag) {
  const size_t equals = flag.find('=');
  frontend::SymbolBinding binding;
  if (equals != std::string::npos && equals > 0) {
    binding.name = flag.substr(0, equals);
    const char* end = flag.data() + flag.size();
    if (flag.substr(equals + 1) == "batch") return binding;
    const auto [stop, error] = std::from_chars(flag.data() + equals + 1, end, binding.size);
    if (error == std::errc() && stop == end && binding.size > 0) return binding;
  }
  return usage("--bind " + flag, "expected NAME=SIZE with a size of at least 1, or NAME=batch",
               "for example --bind sequence=16");
}

Result<std::string> read_parameter_file(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  if (path.empty()) return std::string();
  return files::read_file(path, kMaxBytes);
}

namespace {

frontend::BatchNormMode batchnorm_mode(std::string_view flag) {
  if (flag == "eval") return frontend::BatchNormMode::kEval;
  return flag == "file" ? frontend::BatchNormMode::kFile : frontend::BatchNormMode::kTrain;
}

frontend::DropoutMode dropout_mode(bool on) { return on ? frontend::DropoutMode::kOn : frontend::DropoutMode::kOff; }

// Two inputs that would be read from one file of the data folder.
Status check_data_names(const ir::Graph& graph) {
  std::map<std::string, ModelText> owner;
  Diagnostics problems;
  for (const ir::Input& input : graph.inputs()) {
    if (input.role == ir::InputRole::kLossScale) continue;
    const std::string file = wire::data_file_name(input.name.raw());
    const auto [found, fresh] = owner.emplace(file, input.name);
    if (fresh) continue;
    problems.push_back({.code = Code::kBadModel,
                        .origin = input.name,
                        .message = text("it and the input ", quoted(found->second), " would both be read from ", file),
                        .hint = "export with input_names that differ in letters, digits, '_', '.' or '-'"});
  }
  if (!problems.empty()) return problems;
  return Ok{};
}

// A name with a zero byte ends there wherever programs carry it.
Status check_whole_names(const ir::Graph& graph) {
  Diagnostics problems;
  const auto check = [&](const char* what, const ModelText& name) {
    if (name.raw().find('\0') == std::string::npos) return;
    problems.push_back({.code = Code::kBadModel,
                        .origin = name,
                        .message = text("the name of this ", what, " holds a zero byte, which programs cannot carry"),
                        .hint = "rename it in the model"});
  };
  for (const ir::ParamId id : graph.param_ids()) check("parameter", graph.param(id).name);
  for (const ir::Input& input : graph.inputs()) check("input", input.name);
  for (const ir::Output& output : graph.outputs()) check("output", output.name);
  if (!problems.empty()) return problems;
  return Ok{};
}

// A mode of operators that the model does not have.
Status check_modes(const ModelOptions& options, const ir::Graph& graph) {
  const auto has = [&](std::string_view op) {
    for (const ir::NodeId id : graph.node_ids())
      if (graph.node(id).op == op) return true;
    return false;
  };
  Diagnostics problems;
  if (options.dropout == "on" && !has("Dropout"))
    problems.push_back(usage("--dropout", "no Dropout of the model could drop anything",
                             "leave it out, or export the model in training mode"));
  if (!options.batchnorm.empty() && !has("BatchNormalization"))
    problems.push_back(usage("--batchnorm", "the model has no BatchNormalization", "leave it out"));
  if (!problems.empty()) return problems;
  return Ok{};
}

// Outputs that no run can put together from micro-batches.
void note_left_out_outputs(const ir::Graph& graph, Diagnostics& notes) {
  for (const ir::Output& output : graph.outputs()) {
    const ir::Value& value = graph.value(output.value);
    if (output.role == ir::OutputRole::kLoss || (value.batch == ir::BatchKind::kAxis && value.producer.valid()))
      continue;
    notes.push_back({.code = Code::kBadModel,
                     .severity = Severity::kWarning,
                     .origin = output.name,
                     .message =
                         "`run --save-outputs` leaves this output out: no axis of it holds the samples alone, or no "
                         "operator computes it",
                     .hint = "read what it is computed from"});
  }
}

Result<TrainingGraph> make_training_graph(const frontend::ImportRequest& request, const std::string& loss,
                                          const std::string& policy) {
  TrainingGraph out;
  passes::PassContext context;
  context.forward_only = runs_forwards_only(policy);
  GP_TRY(context.loss, passes::parse_loss(loss));
  GP_TRY(out.imported, frontend::import_onnx(request));
  GP_TRY_VOID(check_whole_names(out.imported.graph));
  if (context.loss.kind.empty() && !context.forward_only) {
    std::string names;
    for (const ir::Output& output : out.imported.graph.outputs()) names += " " + quoted(output.name);
    return Diagnostic{.code = Code::kBadLoss,
                      .message = "training needs a loss; the model's outputs are" + names,
                      .hint = "pass --loss, for example --loss cross_entropy:OUTPUT,LABEL"};
  }
  GP_TRY(out.digest, model_digest(out.imported));
  out.notes = out.imported.notes;
  context.notes = &out.notes;
  GP_TRY(out.graph, passes::run_pipeline(std::move(out.imported.graph), context));
  GP_TRY_VOID(check_data_names(out.graph));
  if (context.forward_only) note_left_out_outputs(out.graph, out.notes);
  return out;
}

Result<frontend::ImportRequest> import_request(const ModelOptions& options, const std::string& policy) {
  frontend::ImportRequest request;
  request.path = options.model;
  request.trusted_root = options.trusted_root;
  request.freeze = options.freeze;
  GP_TRY(request.parameters, read_parameter_file(options.parameters));
  for (const std::string& flag : options.bindings) {
    GP_TRY(frontend::SymbolBinding binding, parse_binding(flag));
    request.symbols.push_back(std::move(binding));
  }
  request.batchnorm = batchnorm_mode(batch_norm_mode(options, policy));
  request.dropout = dropout_mode(options.dropout == "on");
  return request;
}

}  // namespace

bool runs_forwards_only(const std::string& policy) {
  const scheduler::Policy* known = scheduler::find_policy(policy);
  return known != nullptr && known->forward_only;
}

Result<frontend::Imported> import_model(const ModelOptions& options) {
  GP_TRY(const frontend::ImportRequest request, import_request(options, ""));
  GP_TRY(frontend::Imported imported, frontend::import_onnx(request));
  GP_TRY_VOID(check_whole_names(imported.graph));
  GP_TRY_VOID(check_modes(options, imported.graph));
  return imported;
}

std::string batch_norm_mode(const ModelOptions& model, const std::string& policy) {
  if (!model.batchnorm.empty()) return model.batchnorm;
  return runs_forwards_only(policy) ? "eval" : "train";
}

Result<std::string> model_digest(const frontend::Imported& imported) {
  std::string digests;
  for (const std::string& file : imported.files) {
    GP_TRY(const std::string digest, sha256_of_file(file));
    digests += digest;
  }
  return sha256_of_text(digests);
}

Result<TrainingGraph> make_training_graph(const ModelOptions& model, const TrainingOptions& training,
                                          const std::string& policy) {
  GP_TRY(const frontend::ImportRequest request, import_request(model, policy));
  GP_TRY(TrainingGraph out, make_training_graph(request, training.loss, policy));
  GP_TRY_VOID(check_modes(model, out.graph));
  return out;
}

Result<TrainingGraph> make_training_graph(const ir::Plan& plan, const std::string& path) {
  frontend::ImportRequest request;
  request.path = path;
  request.trusted_root = plan.trusted_root.raw();
  request.parameters = plan.parameter_rules.raw();
  for (const ir::SymbolBinding& binding : plan.bindings)
    request.symbols.push_back({.name = binding.symbol.raw(), .size = binding.size});
  request.batchnorm = batchnorm_mode(ir::batch_norm_name(plan.batch_norm));
  request.dropout = dropout_mode(plan.dropout);
  return make_training_graph(request, plan.loss.raw(), plan.policy);
}

}  // namespace graphpipe::driver
