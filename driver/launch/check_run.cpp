#include "driver/launch/check_run.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "driver/pipeline/pipeline.h"
#include "files/safetensors.h"
#include "support/mapped_file.h"
#include "wire/check_data.h"
#include "wire/learning_rate.h"
#include "wire/manifest.h"
#include "wire/optimizers.h"
#include "wire/scan_numbers.h"
#include "wire/weight_parts.h"

namespace graphpipe::driver {
namespace {

// The types of the folder's parameters, by name.
Result<std::map<std::string, wire::ElementType>> weight_types(const std::string& folder) {
  GP_TRY(const auto index, files::read_safetensors(folder + "/" + std::string(wire::kWeightsFile)));
  GP_TRY(const auto parts, wire::read_weight_parts(folder));
  std::map<std::string, wire::ElementType> types;
  for (const files::TensorEntry& tensor : index.tensors) types.emplace(tensor.name.raw(), tensor.dtype);
  for (const wire::WeightPart& part : parts) types.emplace(part.tensor.name.raw(), part.tensor.dtype);
  return types;
}

// What `load_state_dict` calls unexpected keys: the file may be of another model that shares the other names.
void note_unknown(const std::string& folder, const std::string& path, std::span<const files::TensorEntry> tensors,
                  Diagnostics& found) {
  const auto known = weight_types(folder);
  const auto table = wire::read_data_table(folder);
  if (!known || !table) return;
  const std::set<std::string> tied(table->tied_names.begin(), table->tied_names.end());
  size_t count = 0;
  ModelText first;
  for (const files::TensorEntry& tensor : tensors) {
    const std::string& name = tensor.name.raw();
    // A counter that PyTorch's norms keep beside their statistics.
    if (known->contains(name) || tied.contains(name) || name.ends_with("num_batches_tracked")) continue;
    if (count++ == 0) first = tensor.name;
  }
  if (count == 0) return;
  found.push_back({.code = Code::kBadData,
                   .severity = Severity::kWarning,
                   .origin = ModelText(path),
                   .message = text(count, count == 1 ? " tensor is" : " tensors are",
                                   " not of the model, and not read; the first is ", quoted(first)),
                   .hint = "see whether the file is of this model"});
}

Diagnostics check_weights(const std::string& folder, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return {{.code = Code::kUnreadableFile,
             .origin = ModelText(path),
             .message = "the weights are to be a file, and this is a folder",
             .hint =
                 "name what --save wrote; of checkpoints, `run --resume FOLDER --save FILE` with as many --steps as "
                 "are done writes it"}};
  }
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.problems();
  const std::span<const std::byte> bytes = file->bytes();
  const auto index = wire::parse_safetensors({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                             static_cast<int64_t>(bytes.size()));
  if (!index) {
    Diagnostics problems = index.problems();
    for (Diagnostic& problem : problems) problem.message = text(quoted(ModelText(path)), ": ", problem.message);
    return problems;
  }
  Diagnostics problems;
  note_unknown(folder, path, index->tensors, problems);
  for (const files::TensorEntry& tensor : index->tensors) {
    const auto elements = bytes.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.length));
    const auto found = wire::find_not_finite(tensor.dtype, tensor.shape, elements);
    if (!found || problems.size() == kMaxProblems) continue;
    problems.push_back({.code = Code::kBadData,
                        .origin = tensor.name,
                        .message = text(*found, " in the weights of ", quoted(ModelText(path))),
                        .hint = "start from weights of an earlier step: training cannot recover from these"});
  }
  return problems;
}

bool has_uneven_replicas(const ir::Plan& plan) {
  return std::ranges::any_of(plan.assignment.choice, [&](const ir::StageChoice& choice) {
    return choice.devices.size() != plan.assignment.choice.begin()->devices.size();
  });
}

bool has_replicas(const ir::Plan& plan) {
  return std::ranges::any_of(plan.assignment.choice, [](const auto& choice) { return choice.devices.size() > 1; });
}

bool computes_after_update(const ir::Program& program) {
  const auto update = std::ranges::find(program.actions, ir::ActionOp::kStep, &ir::Action::op);
  return std::any_of(update, program.actions.end(), [](const ir::Action& action) { return ir::is_compute(action.op); });
}

}  // namespace

Result<RunFacts> run_facts(const std::string& folder, const ir::Plan& plan, const wire::RunOptions& run) {
  GP_TRY(const wire::DataTable table, wire::read_data_table(folder));
  GP_TRY(const auto weights, weight_types(folder));
  std::set<wire::ElementType> types;
  for (const auto& [name, type] : weights) types.insert(type);
  const ir::Schedule& schedule = plan.schedule.value();
  return RunFacts{
      .trains = !is_forward_only(schedule),
      .optimizer = plan.spec.optimizer,
      .decays = wire::numbers_of(wire::optimizer_named(plan.spec.optimizer), run.optimizer).weight_decay > 0,
      .synchronous = !ir::is_asynchronous(schedule),
      .updates_at_end = std::ranges::none_of(schedule.programs, computes_after_update),
      .random = table.draws_random || run.data.shuffle || (run.data.folder.empty() && run.data.feed.empty()),
      .reads_files = !run.data.folder.empty(),
      .is_fed = !run.data.feed.empty(),
      .evaluates = !run.data.eval_folder.empty(),
      .devices = schedule.programs.size(),
      .serves_parameters = schedule.policy == "parameter-server",
      .sums_gradients = schedule.policy != "parameter-server" && has_replicas(plan),
      .has_uneven_replicas = has_uneven_replicas(plan),
      .has_16_bit_weights = types.contains(wire::ElementType::kFloat16) || types.contains(wire::ElementType::kBFloat16),
      .scales_loss = table.scales_loss,
      .divides_main_weights = table.divides_main_weights && run.optimizer.main_weights,
      .takes_checkpoints = !run.checkpoint.folder.empty(),
      .resumes = !run.checkpoint.resume.empty(),
      .on_gpu = run.launch.device == "cuda"};
}

namespace {

Result<int64_t> count_steps(const std::string& folder, const wire::DataOptions& data) {
  if (data.epochs == 0) return data.steps;
  if (wire::is_test_data_folder(data.folder))
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText("--epochs"),
                      .message = "the epochs of ONNX test data are not counted before the programs read them",
                      .hint = "pass --steps"};
  GP_TRY(const wire::DataTable table, wire::read_data_table(folder, data.paddings));
  wire::NpyFolder files(data.folder, table);
  const wire::DataUse use = wire::data_use(data, 0);
  GP_TRY(const wire::SampleOrder order,
         wire::sample_order(
             table, [&](const wire::DataEntry& entry) { return files.open(entry); }, table.batch, use.rule));
  return wire::steps_of(order, use);
}

}  // namespace

Result<wire::RunOptions> in_steps(const std::string& folder, wire::RunOptions run, const wire::DataOptions& read) {
  GP_TRY(run.data.steps, count_steps(folder, read));
  run.data.epochs = 0;
  const std::string at_odds = wire::flags_at_odds(run);
  if (!at_odds.empty())
    return Diagnostic{.code = Code::kUsage, .origin = {}, .message = at_odds, .hint = "leave one out, or change it"};
  return run;
}

Diagnostics check_run_files(const std::string& folder, const wire::RunOptions& run) {
  Diagnostics found;
  if (!run.data.folder.empty())
    found = wire::check_data_folder(folder, run.data.folder, wire::data_use(run.data, 0), run.data.paddings);
  if (!run.data.eval_folder.empty())
    for (Diagnostic& problem :
         wire::check_data_folder(folder, run.data.eval_folder, wire::evaluation_use(), run.data.paddings))
      found.push_back(std::move(problem));
  const Result<wire::LearningRate> rate = wire::LearningRate::of(run.optimizer);
  if (!rate.ok())
    for (const Diagnostic& problem : rate.problems()) found.push_back(problem);
  if (run.data.weights.empty()) return found;
  for (Diagnostic& problem : check_weights(folder, run.data.weights)) found.push_back(std::move(problem));
  return found;
}

}  // namespace graphpipe::driver
