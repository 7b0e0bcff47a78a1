// graphpipe verify: the two checks of what "equal to one process" means.
//
// Bitwise: the pipeline against the serial interpreter of the same plan. By tolerance: the pipeline against the
// unpartitioned model at the full batch, one stage in one process (at the plan's micro-batch where samples mix).

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/launch/build_folder.h"
#include "driver/launch/launch.h"
#include "driver/launch/process.h"
#include "driver/pipeline/pipeline.h"
#include "driver/report/compare_tensors.h"
#include "driver/report/report.h"
#include "driver/report/run_report.h"
#include "driver/verbs/generate.h"
#include "partitioner/batch_stages.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

/// Relative differences that rounding explains: of losses, and of a tensor's norm.
struct Tolerance {
  double loss = 0, tensor = 0;
  ir::DType computes_in = ir::DType::kFloat32;
};

/// Float32 and wider have one tolerance. Sums in the 16-bit formats, in another order and over other micro-batches,
/// differ by a few of their units, 2^-12 and 2^-9; what a wrong partition or a wrong weight of the loss does is more.
Tolerance tolerance_of(const ir::Graph& graph) {
  Tolerance tolerance{.loss = 1e-5, .tensor = 1e-4};
  for (const ir::ValueId id : graph.value_ids()) {
    const ir::DType dtype = graph.value(id).type.dtype;
    if (dtype == ir::DType::kBFloat16) return {.loss = 1e-2, .tensor = 5e-2, .computes_in = ir::DType::kBFloat16};
    if (dtype == ir::DType::kFloat16) tolerance = {.loss = 2e-3, .tensor = 1e-2, .computes_in = ir::DType::kFloat16};
  }
  return tolerance;
}

struct TrainingResult {
  std::vector<double> losses;
  std::string weights, gradients, outputs;  // files; outputs of forward-only plans
};

struct Verdict {
  bool bitwise = false;
  /// Asynchronous schedules apply gradients of older weights: no unpartitioned run computes the same.
  bool compared = true;
  bool by_tolerance = false;
  /// Nothing is trained: outputs are compared instead of gradients.
  bool forward_only = false;
  Tolerance tolerance;
  double loss_difference = 0, gradient_difference = 0, weight_difference = 0, output_difference = 0;
  bool passed() const { return bitwise && (by_tolerance || !compared); }
};

Result<TrainingResult> finish(Result<RunOutcome> outcome, TrainingResult files) {
  if (!outcome) return outcome.problems();
  if (outcome->exit_code != 0) {
    return Diagnostic{.code = outcome->exit_code == wire::kExitInputRefused ? Code::kBadData : Code::kPeerFailed,
                      .message = text("a training run ended with exit code ", outcome->exit_code),
                      .hint = "its messages are above"};
  }
  GP_TRY(files.losses, report_numbers(outcome->report, "losses"));
  return files;
}

// Where a run leaves its tensors, in the folder that is verified.
Result<wire::RunOptions> run_options(const Options& options, const ir::Plan& plan, const TrainingResult& files) {
  GP_TRY(wire::RunOptions run, to_run_options(options.run, plan, true));
  run.save = std::filesystem::absolute(files.weights);
  run.save_gradients = std::filesystem::absolute(files.gradients);
  if (!files.outputs.empty()) run.save_outputs = std::filesystem::absolute(files.outputs);
  return run;
}

TrainingResult files_named(const std::string& folder, const std::string& name, const Pipeline& pipeline) {
  const std::string stem = folder + "/verify/" + name;
  return {.losses = {},
          .weights = stem + ".weights.safetensors",
          .gradients = stem + ".gradients.safetensors",
          .outputs = is_forward_only(pipeline.built.schedule) ? stem + ".outputs.safetensors" : ""};
}

Diagnostic no_reference() {
  return {.code = Code::kBadPlan,
          .message =
              "nodes that work on the samples of a micro-batch together have micro-batches of different sizes, so no "
              "unpartitioned run computes the same",
          .hint = "give their stages one micro-batch size"};
}

// The micro-batch of the nodes that work on the samples of one together; none where there are no such nodes.
Result<std::optional<Samples>> shared_micro_batch(const Pipeline& pipeline) {
  std::optional<Samples> size;
  for (const ir::PlanNodeId node : pipeline.priced.node_ids()) {
    if (pipeline.priced.nodes[node].scope != ir::SampleScope::kMicroBatch) continue;
    const ir::Assignment& plan = pipeline.plan.assignment;
    const Samples own = plan.choice[plan.stage_of[node]].micro_batch;
    if (size && *size != own) return no_reference();
    size = own;
  }
  return size;
}

// The unpartitioned model, every node in one stage on one device, at another number of samples than the pipeline's
// stages compute at. Where nodes work on the samples of a micro-batch together its size is part of what is computed; if
// others work on the whole batch these are a second stage.
Result<ir::Assignment> reference_assignment(const Pipeline& pipeline) {
  const ir::PlanGraph& graph = pipeline.priced;
  const Samples batch = pipeline.plan.batch;
  GP_TRY(const std::optional<Samples> shared, shared_micro_batch(pipeline));
  const auto is_whole = [&](const ir::Stage& stage) { return stage.choice.micro_batch == batch; };
  const bool at_once = std::ranges::all_of(pipeline.stages.stages, is_whole);
  Samples size = shared.value_or(batch);
  // A pipeline that takes the whole batch at once is compared with halves: a model that bakes a batch size in, or that
  // mixes samples where nothing says so, computes something else then.
  if (!shared && !graph.has_batch_scope() && at_once) size = Samples((batch.count + 1) / 2);
  ir::Assignment reference;
  reference.stage_of.resize(graph.nodes.size(), ir::StageId(0));
  reference.choice.push_back({.devices = {ir::DeviceId(0)}, .micro_batch = size});
  if (!graph.has_batch_scope() || size == batch) return reference;
  const ir::StageId whole = reference.choice.push_back({.devices = {ir::DeviceId(0)}, .micro_batch = batch});
  for (const ir::PlanNodeId node : partitioner::batch_nodes_and_below(graph)) {
    if (graph.nodes[node].scope == ir::SampleScope::kMicroBatch) return no_reference();
    reference.stage_of[node] = whole;
  }
  return reference;
}

Result<Pipeline> reference_pipeline(const Pipeline& pipeline) {
  Pipeline reference;
  reference.plan = pipeline.plan;
  reference.model = pipeline.model;
  GP_TRY(reference.plan.assignment, reference_assignment(pipeline));
  reference.plan.planner = "manual";
  // Most policies are not defined on one stage, and the order of its items is all that they could decide.
  reference.plan.policy = is_forward_only(pipeline.built.schedule) ? "inference" : "kfkb";
  // A model that is cut because it fits no single device is still to be compared with itself uncut.
  reference.plan.cluster = ir::equal_devices(1);
  reference.plan.cluster.devices[ir::DeviceId(0)].memory = Bytes(int64_t{1} << 50);
  reference.plan.schedule.reset();
  reference.priced = pipeline.priced;
  GP_TRY_VOID(derive(reference));
  return reference;
}

Result<TrainingResult> run_reference(const Options& options, const Pipeline& pipeline) {
  const std::string folder = options.input + "/verify/reference";
  GP_TRY(const Pipeline reference, reference_pipeline(pipeline));
  GP_TRY_VOID(generate_folder(reference, folder, {.bundle = std::filesystem::exists(options.input + "/runtime")}));
  GP_TRY_VOID(build_folder(folder, options));
  TrainingResult files = files_named(options.input, "reference", pipeline);
  GP_TRY(const wire::RunOptions run, run_options(options, reference.plan, files));
  return finish(launch_serial(folder, run), files);
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-30);
    worst = a[i] == b[i] ? worst : difference > worst || std::isnan(difference) ? difference : worst;
  }
  return worst;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

Result<Verdict> verify(const Options& options) {
  GP_TRY(const Pipeline pipeline, load_pipeline(options.input));
  std::filesystem::create_directories(options.input + "/verify");
  TrainingResult pipelined = files_named(options.input, "pipeline", pipeline),
                 serial = files_named(options.input, "serial", pipeline);
  GP_TRY(const wire::RunOptions run, run_options(options, pipeline.plan, pipelined));
  GP_TRY(pipelined,
         finish(launch_devices(options.input, static_cast<int>(pipeline.built.schedule.programs.size()), run, false),
                pipelined));
  GP_TRY(const wire::RunOptions serial_run, run_options(options, pipeline.plan, serial));
  GP_TRY(serial, finish(launch_serial(options.input, serial_run), serial));
  Verdict verdict;
  GP_TRY(const bool same_weights, same_bytes(pipelined.weights, serial.weights));
  GP_TRY(const bool same_gradients, same_bytes(pipelined.gradients, serial.gradients));
  verdict.forward_only = is_forward_only(pipeline.built.schedule);
  bool same_outputs = true;
  if (verdict.forward_only) {
    GP_TRY(same_outputs, same_bytes(pipelined.outputs, serial.outputs));
  }
  verdict.bitwise = same_weights && same_gradients && same_outputs && same_bits(pipelined.losses, serial.losses);
  verdict.compared = !ir::is_asynchronous(pipeline.built.schedule);
  if (!verdict.compared) return verdict;

  GP_TRY(const TrainingResult reference, run_reference(options, pipeline));
  verdict.tolerance = tolerance_of(pipeline.model.graph);
  verdict.loss_difference = relative_difference(pipelined.losses, reference.losses);
  if (verdict.forward_only) {
    GP_TRY(verdict.output_difference, largest_difference(pipelined.outputs, reference.outputs));
  } else {
    GP_TRY(verdict.gradient_difference, largest_difference(pipelined.gradients, reference.gradients));
  }
  GP_TRY(verdict.weight_difference, largest_difference(pipelined.weights, reference.weights));
  verdict.by_tolerance = verdict.loss_difference <= verdict.tolerance.loss &&
                         std::max({verdict.gradient_difference, verdict.weight_difference,
                                   verdict.output_difference}) <= verdict.tolerance.tensor;
  return verdict;
}

void print(const Options& options, const Verdict& verdict) {
  if (options.json) {
    JsonObject object;
    object.add("bitwise", verdict.bitwise).add("asynchronous", !verdict.compared);
    if (verdict.compared) {
      object.add("by_tolerance", verdict.by_tolerance);
      object.add("loss_difference", verdict.loss_difference).add("gradient_difference", verdict.gradient_difference);
      object.add("weight_difference", verdict.weight_difference);
      object.add("output_difference", verdict.output_difference);
      object.add("loss_tolerance", verdict.tolerance.loss).add("tensor_tolerance", verdict.tolerance.tensor);
    }
    print_json("verify", object.add("passed", verdict.passed()), {});
    return;
  }
  std::cout << "pipeline against the serial interpreter of the same plan: "
            << (verdict.bitwise ? "the same bits" : "DIFFERENT BITS")
            << (verdict.forward_only ? " (outputs, losses)\n" : " (losses, gradients, weights)\n");
  if (!verdict.compared) {
    std::cout << "the schedule is asynchronous: it uses older weights than one process would, "
                 "so there is no other check\n"
              << (verdict.passed() ? "verify: passed\n" : "verify: FAILED\n");
    return;
  }
  std::cout << "pipeline against the unpartitioned model: " << (verdict.by_tolerance ? "equal" : "NOT EQUAL")
            << " within the tolerance of " << ir::dtype_name(verdict.tolerance.computes_in)
            << "; largest relative difference: losses " << json_number(verdict.loss_difference)
            << (verdict.forward_only ? ", outputs " + json_number(verdict.output_difference)
                                     : ", gradients " + json_number(verdict.gradient_difference) + ", weights " +
                                           json_number(verdict.weight_difference))
            << "\n"
            << (verdict.passed() ? "verify: passed\n" : "verify: FAILED\n");
}

}  // namespace

int run_verify(const Options& options) {
  catch_interrupts();
  const Result<Verdict> verdict = verify(options);
  if (!verdict) return report_problems(options, "verify", verdict.problems());
  print(options, *verdict);
  return verdict->passed() ? wire::kExitOk : wire::kExitCheckFailed;
}

}  // namespace graphpipe::driver
