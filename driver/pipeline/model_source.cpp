#include "driver/pipeline/model_source.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "driver/pipeline/model_spec.h"
#include "files/safetensors.h"
#include "ops/op_def.h"
#include "passes/pipeline.h"
#include "wire/data_file.h"

namespace graphpipe::driver {

namespace {

// Refuses inputs that would be read from the same file of the data folder.
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

/// A --loss for this model: a scalar is one that it computes itself, and of others the first floating one is taken for
/// logits.
std::string loss_to_try(const ir::Graph& graph) {
  std::string logits = "OUTPUT";
  for (const ir::Output& output : graph.outputs()) {
    const ir::TensorType& type = graph.value(output.value).type;
    if (!ir::is_floating(type.dtype)) continue;
    if (type.shape.empty()) return text("--loss output:", quoted(output.name));
    if (logits == "OUTPUT") logits = quoted(output.name);
  }
  return text("--loss cross_entropy:", logits, ",LABEL, where LABEL.npy will hold the labels");
}

// Programs would cut a name at a zero byte. Trained weights and outputs are saved under their names, so a safetensors
// file must be able to hold these.
Status check_usable_names(const ir::Graph& graph) {
  Diagnostics problems;
  const auto check = [&](const char* what, const ModelText& name, bool is_saved) {
    const bool has_zero = name.raw().find('\0') != std::string::npos;
    if (!has_zero && (!is_saved || files::can_name_tensor(name.raw()))) return;
    problems.push_back({.code = Code::kBadModel,
                        .origin = name,
                        .message = text("the name of this ", what,
                                        has_zero ? " holds a zero byte, which programs cannot carry"
                                                 : " is none that a safetensors file can hold: it is no UTF-8, or is "
                                                   "kept for the file's metadata"),
                        .hint = "rename it in the model"});
  };
  for (const ir::ParamId id : graph.param_ids()) check("parameter", graph.param(id).name, true);
  for (const ir::Input& input : graph.inputs()) check("input", input.name, false);
  for (const ir::Output& output : graph.outputs()) check("output", output.name, true);
  if (!problems.empty()) return problems;
  return Ok{};
}

// Refuses a mode for operators that the model does not have.
Status check_modes(const ModelOptions& options, const ir::Graph& graph) {
  const auto has = [&](auto is_one) {
    for (const ir::NodeId id : graph.node_ids())
      if (is_one(*ops::find_op(graph.node(id).op))) return true;
    return false;
  };
  const auto drops = [](const ops::OpDef& op) { return op.is_random && op.in_evaluation != nullptr; };
  const auto keeps_statistics = [](const ops::OpDef& op) { return op.updates_inputs != nullptr; };
  Diagnostics problems;
  if (options.dropout == "on" && !has(drops))
    problems.push_back(usage("--dropout", "no Dropout of the model could drop anything",
                             "leave it out, or export the model in training mode"));
  if (!options.batchnorm.empty() && !has(keeps_statistics))
    problems.push_back(usage("--batchnorm", "the model has no BatchNormalization", "leave it out"));
  if (!problems.empty()) return problems;
  return Ok{};
}

// Warns of outputs that no run can put together from micro-batches.
void note_left_out_outputs(const ir::Graph& graph, Diagnostics& notes) {
  for (const ir::Output& output : graph.outputs()) {
    if (output.role == ir::OutputRole::kLoss || ir::joins_samples(graph, output)) continue;
    notes.push_back({.code = Code::kBadModel,
                     .severity = Severity::kWarning,
                     .origin = output.name,
                     .message =
                         "`run --save-outputs` leaves this output out: no axis of it holds the samples alone, or no "
                         "operator computes it",
                     .hint = "read what it is computed from"});
  }
}

}  // namespace

Result<frontend::Imported> import_model(const Options& options) {
  GP_TRY(ir::ModelSpec spec, model_spec(options));
  GP_TRY(frontend::Imported imported, frontend::import_onnx({.spec = std::move(spec)}));
  GP_TRY_VOID(check_usable_names(imported.graph));
  GP_TRY_VOID(check_modes(options.model, imported.graph));
  return imported;
}

namespace {

Diagnostic unreadable(const std::string& path, std::string why) {
  return {.code = Code::kUnreadableFile,
          .origin = ModelText(path),
          .message = std::move(why),
          .hint = "check the path and the permissions"};
}

}  // namespace

Result<std::string> model_digest(const frontend::Imported& imported) {
  GP_TRY(std::string joined, sha256_of_file(imported.files.front()));
  for (size_t i = 1; i < imported.files.size(); ++i) {
    std::error_code error;
    const auto size = std::filesystem::file_size(imported.files[i], error);
    if (error) return unreadable(imported.files[i], error.message());
    joined += text(" ", size);
  }
  for (const ir::FileRange& range : imported.outside_constants) {
    std::string bytes(static_cast<size_t>(range.length), '\0');
    std::ifstream file(range.path, std::ios::binary);
    file.seekg(range.offset);
    if (!file.read(bytes.data(), range.length)) return unreadable(range.path, "it ends too early");
    joined += bytes;
  }
  return sha256_of_text(joined);
}

Result<std::map<std::string, std::string>> file_digests(const frontend::Imported& imported) {
  std::map<std::string, std::string> digests;
  for (const std::string& file : imported.files) {
    GP_TRY(digests[file], sha256_of_file(file));
  }
  return digests;
}

Result<TrainingGraph> make_training_graph(const ir::ModelSpec& spec, bool forward_only) {
  TrainingGraph out;
  passes::PassContext context{.loss = spec.loss, .precision = spec.precision, .forward_only = forward_only};
  GP_TRY(out.imported, frontend::import_onnx({.spec = spec}));
  GP_TRY_VOID(check_usable_names(out.imported.graph));
  if (spec.loss.kind.empty() && !forward_only) {
    std::string names;
    for (const ir::Output& output : out.imported.graph.outputs()) names += " " + quoted(output.name);
    return Diagnostic{.code = Code::kBadLoss,
                      .message = "training needs a loss; the model's outputs are" + names,
                      .hint = "pass --loss, for example " + loss_to_try(out.imported.graph)};
  }
  out.notes = out.imported.notes;
  context.notes = &out.notes;
  GP_TRY(out.graph, passes::run_pipeline(std::move(out.imported.graph), context));
  GP_TRY_VOID(check_data_names(out.graph));
  if (forward_only) note_left_out_outputs(out.graph, out.notes);
  return out;
}

Result<TrainingGraph> make_training_graph(const Options& options, const ir::ModelSpec& spec) {
  GP_TRY(TrainingGraph out, make_training_graph(spec, runs_forwards_only(options.plan.policy)));
  GP_TRY_VOID(check_modes(options.model, out.graph));
  return out;
}

}  // namespace graphpipe::driver
