#include "driver/pipeline/model_spec.h"

#include <algorithm>
#include <optional>
#include <set>

#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "files/module_facts.h"
#include "files/text_file.h"
#include "passes/losses/registry.h"
#include "scheduler/policies/policies.h"

namespace graphpipe::driver {
namespace {

// NAME=SIZE, or NAME=batch.
Result<ir::SymbolBinding> parse_binding(const std::string& flag) {
  const size_t equals = flag.find('=');
  if (equals != std::string::npos && equals > 0) {
    ir::SymbolBinding binding{.symbol = ModelText(flag.substr(0, equals)), .size = 0};
    const std::string_view size = std::string_view(flag).substr(equals + 1);
    if (size == "batch" || (read_number(size, binding.size) && binding.size > 0)) return binding;
  }
  return usage("--bind " + flag, "expected NAME=SIZE with a size of at least 1, or NAME=batch",
               "for example --bind sequence=16");
}

Result<ModelText> read_parameter_file(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  if (path.empty()) return ModelText();
  GP_TRY(std::string content, files::read_file(path, kMaxBytes));
  return ModelText(std::move(content));
}

// What the exported module says of its parameters, as lines that come before the user's: the later ones win.
Result<std::optional<std::string>> lines_of_module(const std::string& model) {
  GP_TRY(const std::optional<files::ModuleFacts> facts, files::module_facts_beside(model));
  if (!facts) return std::optional<std::string>();
  GP_TRY(const std::string digest, sha256_of_file(model));
  if (digest == facts->model_digest) return std::optional(files::parameter_lines(*facts));
  return Diagnostic{.code = Code::kMalformedFile,
                    .origin = ModelText(model + ".module.json"),
                    .message = "it was written for another model file than the one beside it",
                    .hint = "export the model again with graphpipe.export, or remove this file"};
}

// In one order: that of the flags means nothing.
std::string bindings_text(const ir::ModelSpec& spec) {
  std::set<std::string> bindings;
  for (const ir::SymbolBinding& binding : spec.bindings)
    bindings.insert(text(binding.symbol.raw(), "=", binding.size, " "));
  std::string all;
  for (const std::string& binding : bindings) all += binding;
  return all;
}

std::string freeze_text(const ir::ModelSpec& spec) {
  std::string all;
  for (const ModelText& pattern : spec.freeze) all += pattern.raw() + " ";
  return all;
}

}  // namespace

bool runs_forwards_only(const std::string& policy) {
  const scheduler::Policy* known = scheduler::find_policy(policy);
  return known != nullptr && known->forward_only;
}

Result<ir::ModelSpec> model_spec(const Options& options) {
  const ModelOptions& model = options.model;
  ir::ModelSpec spec;
  spec.path = ModelText(model.model);
  spec.trusted_root = ModelText(model.trusted_root);
  for (const std::string& flag : model.bindings) {
    GP_TRY(ir::SymbolBinding binding, parse_binding(flag));
    const auto other = std::ranges::find(spec.bindings, binding.symbol, &ir::SymbolBinding::symbol);
    if (other != spec.bindings.end() && other->size != binding.size)
      return usage("--bind " + flag, "another --bind gives the same dimension another size", "leave one of them out");
    spec.bindings.push_back(std::move(binding));
  }
  spec.one_sample = model.one_sample;
  spec.accepts_losses = model.accepts_losses;
  for (const std::string& pattern : model.freeze) spec.freeze.emplace_back(pattern);
  GP_TRY(const std::optional<std::string> lines, lines_of_module(model.model));
  spec.says_what_trains = lines.has_value();
  GP_TRY(const ModelText of_user, read_parameter_file(model.parameters));
  spec.parameter_rules = ModelText(lines.value_or("") + of_user.raw());
  // Here and below: the command line has checked the words.
  if (!model.batchnorm.empty()) spec.batch_norm = ir::batch_norm_of_name(model.batchnorm).value();
  else if (runs_forwards_only(options.plan.policy)) spec.batch_norm = ir::BatchNormMode::kEval;
  spec.dropout = model.dropout == "on";
  GP_TRY(spec.loss, passes::parse_loss(options.training.loss));
  spec.optimizer = options.training.optimizer;
  spec.contrastive = ir::sample_scope_of_name(options.training.contrastive).value();
  spec.precision = ir::precision_of_name(options.training.precision).value();
  return spec;
}

void take_model_flags(const ir::ModelSpec& of_plan, Options& options) {
  const auto is_free = [&](const char* flag) { return !options.given.contains(flag); };
  ModelOptions& model = options.model;
  TrainingOptions& training = options.training;
  if (is_free("--loss") && !of_plan.loss.kind.empty()) training.loss = passes::print_loss(of_plan.loss);
  if (is_free("--optimizer")) training.optimizer = of_plan.optimizer;
  if (is_free("--contrastive")) training.contrastive = ir::sample_scope_name(of_plan.contrastive);
  if (is_free("--precision")) training.precision = ir::precision_name(of_plan.precision);
  if (is_free("--dropout") && of_plan.dropout) model.dropout = "on";
  // The usual mode is not asked of a model without BatchNorm.
  const ir::BatchNormMode usual =
      runs_forwards_only(options.plan.policy) ? ir::BatchNormMode::kEval : ir::BatchNormMode::kTrain;
  if (is_free("--batchnorm") && of_plan.batch_norm != usual) model.batchnorm = ir::batch_norm_name(of_plan.batch_norm);
  if (is_free("--bind"))
    for (const ir::SymbolBinding& binding : of_plan.bindings)
      model.bindings.push_back(binding.symbol.raw() + "=" +
                               (binding.size == 0 ? std::string("batch") : std::to_string(binding.size)));
  model.one_sample = model.one_sample || of_plan.one_sample;
  model.accepts_losses = model.accepts_losses || of_plan.accepts_losses;
  if (is_free("--freeze"))
    for (const ModelText& pattern : of_plan.freeze) model.freeze.push_back(pattern.raw());
}

Diagnostic other_option(std::string_view flag, const std::string& of_plan, const std::string& now) {
  return {.code = Code::kBadPlan,
          .origin = ModelText(std::string(flag)),
          .message = text("the plan was made with ", quoted(ModelText(of_plan)), ", this is ", quoted(ModelText(now)),
                          ": its node numbers mean other nodes"),
          .hint = "pass what the plan was made with, or make the plan again"};
}

Diagnostics spec_differences(const ir::ModelSpec& of_plan, const ir::ModelSpec& now) {
  Diagnostics problems;
  const auto compare = [&](std::string_view flag, const auto& text_of) {
    const std::string then = text_of(of_plan), here = text_of(now);
    if (then != here) problems.push_back(other_option(flag, then, here));
  };
  using Spec = ir::ModelSpec;
  compare("--loss", [](const Spec& spec) { return passes::print_loss(spec.loss); });
  compare("--batchnorm", [](const Spec& spec) { return std::string(ir::batch_norm_name(spec.batch_norm)); });
  compare("--contrastive", [](const Spec& spec) { return std::string(ir::sample_scope_name(spec.contrastive)); });
  compare("--precision", [](const Spec& spec) { return std::string(ir::precision_name(spec.precision)); });
  compare("--dropout", [](const Spec& spec) { return std::string(spec.dropout ? "on" : "off"); });
  compare("--bind", bindings_text);
  compare("--one-sample", [](const Spec& spec) { return std::string(spec.one_sample ? "on" : "off"); });
  compare("--freeze", freeze_text);
  compare("--parameters", [](const Spec& spec) { return spec.parameter_rules.raw(); });
  return problems;
}

}  // namespace graphpipe::driver
