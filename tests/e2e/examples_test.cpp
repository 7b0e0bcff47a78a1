// The example models, trained as pipelines: the same bits as the serial interpreter of the same plan, and the losses,
// gradients and weights that PyTorch gets from the original module (tests/data/models/*/reference.*).

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "support/text.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/support/case_count.h"
#include "wire/data_table.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

// Stage code does not depend on order or micro-batches, so one folder per stage count serves all its plans, and the
// tests of policies have the same stages. Two stages of some models are in the cases below.
void check_model(const std::string& name, const std::vector<std::vector<std::string>>& extra_plans) {
  const Reference reference = read_reference(name);
  for (const int stages : all_cases() ? std::vector<int>{1, 4} : std::vector<int>{4}) {
    const std::string folder = work_folder(name + "_" + std::to_string(stages));
    const std::string count = std::to_string(stages);
    compile(reference, folder,
            {"--devices", count, "--planner", "equal-split", "--stages", count, "--micro-batch", "2"});
    check_folder(reference, folder, name + ", " + count + " stages, kfkb");
    check_arenas(reference, folder);
  }
  // policies_test has all policies; here a second one shows that the order does not matter.
  const std::string folder = work_folder(name + "_4"), plan = folder + ".plan.json";
  std::filesystem::copy_file(folder + "/plan.json", plan, std::filesystem::copy_options::overwrite_existing);
  set_micro_batches(plan, {2, 2, 2, 2});  // the same, without the schedule
  compile(reference, folder, {"--devices", "4", "--plan", plan, "--policy", "gpipe"});
  check_folder(reference, folder, name + ", 4 stages, gpipe");
  if (!all_cases()) return;
  for (const std::vector<std::string>& flags : extra_plans) {
    const std::string folder = work_folder(name + "_extra");
    compile(reference, folder, flags);
    check_folder(reference, folder, name + ", " + joined(flags));
  }
}

// Losses as PyTorch's at the full batch, which recorded no tensors; these are those of the unpartitioned model.
void check_batch(const Reference& reference, const std::string& folder, const std::vector<std::string>& flags) {
  const std::string what = text(reference.name, ", ", reference.loss, " ", joined(flags));
  CAPTURE(what);
  compile(reference, folder, flags);
  const Trained pipeline = train(reference, folder, false);
  CHECK(largest_relative(pipeline.losses, reference.losses) <= kLossTolerance);
  CHECK(pipeline.losses.back() > 0.1);  // that of a softmax over one sample is 0
  const nlohmann::json report = nlohmann::json::parse(verify(reference, folder));
  CHECK(report["bitwise"] == true);
  CHECK(report["by_tolerance"] == true);
}

}  // namespace

TEST_CASE("clip_like") { check_model("clip_like", {}); }

TEST_CASE("as the models say: a loss that compares samples and BatchNorm see the whole batch, in any plan") {
  const Reference clip = read_batch_reference("clip_like");
  const std::string folder = work_folder("clip_like_batch");
  check_batch(clip, folder, {"--devices", "4"});
  const std::vector<std::vector<std::string>> plans = {
      {"--planner", "data-parallel", "--micro-batch", "4"},
      {"--planner", "graphpipe", "--micro-batch", "2"},
      {"--planner", "equal-split", "--micro-batch", "2", "--policy", "zb-1p"}};
  for (std::vector<std::string> flags : std::span(plans).last(case_count(1, plans.size()))) {
    flags.insert(flags.end(), {"--devices", "4"});
    check_batch(clip, folder, flags);
  }
  const Reference resnet = read_batch_reference("resnet");
  const std::string resnet_folder = work_folder("resnet_batch");
  check_batch(resnet, resnet_folder, {"--devices", "2", "--stages", "2"});
  // Replicas exchange sums over it, parts of three and two samples too, and again where forwards are repeated.
  if (all_cases()) check_batch(resnet, resnet_folder, {"--devices", "2", "--planner", "data-parallel"});
  check_batch(resnet, resnet_folder, {"--devices", "3", "--planner", "data-parallel", "--recompute", "always"});
  // The last of three has none of fewer than six samples, and all of them must come to an exchange.
  CHECK(read_text(resnet_folder + "/" + std::string(wire::kDataTableFile)).find("together 6 of 8") !=
        std::string::npos);
  check_batch(resnet, resnet_folder, {"--devices", "2", "--planner", "data-parallel", "--policy", "zb-1p"});
}

TEST_CASE("CLIP's own loss, as transformers exports it, trains what PyTorch trains") {
  // Its value is that of the contrastive loss, whose results PyTorch recorded.
  Reference clip = read_batch_reference("clip_like");
  clip.loss = "output:loss";
  const std::string models = work_folder("clip_loss_model"), folder = work_folder("clip_loss");
  std::filesystem::remove_all(models);
  std::filesystem::create_directories(models);
  std::filesystem::copy(clip.folder + "/data", models + "/data", std::filesystem::copy_options::recursive);
  std::filesystem::copy(GRAPHPIPE_SOURCE_DIR "/tests/data/exports/clip_loss/model.onnx", models + "/model.onnx");
  clip.folder = models;
  if (all_cases()) check_batch(clip, folder, {"--devices", "4", "--planner", "data-parallel"});
  check_batch(clip, folder, {"--devices", "4", "--planner", "graphpipe", "--micro-batch", "2"});
}

TEST_CASE("mmt") {
  check_model("mmt", {{"--devices", "4", "--stages", "2", "--micro-batch", "4", "--replicas", "0=3"}});
}

TEST_CASE("dlrm") {
  check_model("dlrm", {{"--devices", "3", "--stages", "2", "--micro-batch", "3", "--replicas", "1=2"}});
}

TEST_CASE("resnet") { check_model("resnet", {}); }

// On several threads too: heads of attention are theirs.
TEST_CASE("gpt2_like") { check_model("gpt2_like", {{"--devices", "2", "--micro-batch", "2", "--threads", "3"}}); }

TEST_CASE("exports: bags that were loops, an LSTM from TorchScript, and calls that mean more than their nodes") {
  for (const char* name : {"bags", "lstm", "messages"}) {
    const Reference reference = read_export(name);
    const std::string folder = work_folder(text("export_", name));
    compile(reference, folder, {"--devices", "1", "--micro-batch", "4"});
    check_folder(reference, folder, text("export ", name));
  }
}

TEST_CASE("exports: what masks pick and data decide, and a model with quantised parts, in two stages") {
  for (const char* name : {"picked", "last_of_each", "decided", "quantized"}) {
    const Reference reference = read_export(name);
    const std::string folder = work_folder(text("export_", name));
    compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "4"});
    check_folder(reference, folder, text("export ", name));
  }
}

TEST_CASE("exports: parameters that the exporter's optimiser took the tensors of train as the module's") {
  for (const char* name : {"optimised", "folded"}) {
    const Reference reference = read_export(name);
    const std::string folder = work_folder(text("export_", name));
    compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "4"});
    check_folder(reference, folder, text("export ", name));
  }
}

TEST_CASE("a file that is one sample: a batch of several, and of one, in two stages") {
  const Reference reference = read_export("one_graph");
  const std::string folder = work_folder("export_one_graph");
  compile(reference, folder, {"--one-sample", "--devices", "2", "--stages", "2"});
  check_folder(reference, folder, "one graph a sample");
  CHECK(nlohmann::json::parse(verify(reference, folder))["by_tolerance"] == true);
  const std::string outputs = folder + ".outputs.safetensors";
  compile(reference, folder, {"--one-sample", "--devices", "2", "--stages", "2", "--policy", "inference"});
  graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", "1", "--save-outputs", outputs});
  CHECK(std::filesystem::file_size(outputs) > 8 * 5 * 2 * sizeof(float));
}

TEST_CASE("unequal micro-batches in neighbouring stages") {
  const std::vector<std::string> names = {"mmt", "dlrm"};
  for (const std::string& name : std::span(names).first(case_count(1, names.size()))) {
    const Reference reference = read_reference(name);
    const std::string folder = work_folder(name + "_2");
    const std::string plan = folder + ".plan.json";
    make_plan(reference, plan, {"--devices", "2", "--stages", "2", "--micro-batch", "2"});
    const std::vector<std::pair<int, int>> sizes = {{3, 2}, {2, 4}, {8, 1}, {4, 2}};
    for (const auto& [first, second] : std::span(sizes).first(case_count(2, sizes.size()))) {
      set_micro_batches(plan, {first, second});
      compile(reference, folder, {"--devices", "2", "--plan", plan});
      check_folder(reference, folder,
                   text(name, ", micro-batches of ", first, " and ", second, " samples in two stages"));
    }
    check_arenas(reference, folder);
  }
}

TEST_CASE("a tied weight in two stages is summed over both") {
  const Reference reference = read_reference("gpt2_like");
  const std::string folder = work_folder("gpt2_like_2");
  compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2"});
  // The embedding is read at the front, the output layer at the back: both stages hold the table.
  CHECK(stages_that_hold(folder, reference.tied_weight) == 2);
  check_folder(reference, folder, "gpt2_like, tied weight in two stages");
}
