// Training in 16 bits, from the command line to trained weights: against PyTorch's autocast and GradScaler
// (tests/data/make_precision_references.py), against one process, and with stops in between.

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const std::string kRecorded = GRAPHPIPE_SOURCE_DIR "/tests/data/precision";

Arguments with(Arguments words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The recorded transformer, compiled in this precision.
void compile_recorded(const std::string& precision, const std::string& folder, const Arguments& more) {
  graphpipe_output(with({"compile", kRecorded + "/model.onnx", "--batch", "8", "--loss", "cross_entropy:logits,label",
                         "--precision", precision, "-o", folder, "--quiet"},
                        more));
}

/// In two stages; compiled at the first call.
const std::string& two_stages(const std::string& precision) {
  static std::map<std::string, std::string> folders;
  std::string& folder = folders[precision];
  if (folder.empty()) {
    folder = work_folder("precision_" + precision);
    compile_recorded(precision, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "4"});
  }
  return folder;
}

json recorded() { return json::parse(read_text(kRecorded + "/reference.json")); }

/// `run` of a recorded model's folder with PyTorch's numbers.
Arguments run_words(const std::string& folder, int steps, const Arguments& more) {
  return with({"run", folder, "--data", kRecorded + "/data", "--steps", std::to_string(steps), "--lr", "0.05",
               "--momentum", "0.9", "--json", "--quiet"},
              more);
}

const Arguments kScaled = {"--loss-scale", "16777216", "--loss-scale-growth", "5"};
const Arguments kGrowing = {"--loss-scale", "16777216", "--loss-scale-growth", "2"};

}  // namespace

TEST_CASE("bfloat16 and float16 train as PyTorch's autocast and GradScaler do, overflows at the same steps") {
  const json reference = recorded();
  for (const std::string precision : {"bf16", "fp16"}) {
    CAPTURE(precision);
    const std::string& folder = two_stages(precision);
    const Arguments scale = precision == "fp16" ? kScaled : Arguments();
    const json report = json::parse(graphpipe_output(run_words(folder, 20, scale)));
    const json& expected = reference[precision];
    CHECK(largest_relative(report["losses"].get<std::vector<double>>(), expected["losses"].get<std::vector<double>>()) <
          5e-3);
    // It is not float32 that was computed.
    if (precision == "bf16") {
      CHECK(largest_relative(report["losses"].get<std::vector<double>>(),
                             reference["float32"]["losses"].get<std::vector<double>>()) > 1e-5);
      CHECK_FALSE(report.contains("loss_scales"));
      graphpipe_output(run_words(folder, 1, kScaled), 2);
      continue;
    }
    CHECK(report["loss_scales"] == expected["loss_scales"]);
    CHECK(report["skipped_steps"] == expected["skipped_steps"]);
  }
}

TEST_CASE("fp16 with overflows, clipping and accumulated steps has the interpreter's bits, over replicas too") {
  const std::string folder = work_folder("precision_replicas");
  compile_recorded("fp16", folder,
                   {"--devices", "3", "--stages", "2", "--replicas", "0=2", "--micro-batch", "1", "--policy", "gpipe",
                    "--optimizer", "adamw"});
  const Arguments numbers = {"--data", kRecorded + "/data", "--lr", "0.01", "--clip-norm", "0.5", "--json", "--quiet"};
  const Arguments few = {"--steps", "12"}, many = {"--steps", "20"};
  const Arguments accumulated = {"--accumulate", "2"};
  // Overflows where every step makes an update, and where several do, so that gradients stay that are no numbers; the
  // sum over the whole batch leaves float16's range at smaller scales than its parts.
  for (const Arguments& more : {with(few, kGrowing), with(with(many, accumulated), kGrowing)}) {
    const json report = json::parse(graphpipe_output(with(with({"verify", folder}, numbers), more)));
    CHECK(report["compared_steps"] > 0);
    CHECK(report["bitwise"] == true);
    CHECK(report["by_tolerance"] == true);
    CHECK(report["same_skipped_steps"] == true);
  }
  // Where all steps overflow nothing is compared, and nothing may pass.
  const Arguments overflowing = with(with(with(numbers, {"--steps", "4"}), kScaled), accumulated);
  const json none = json::parse(graphpipe_output(with({"verify", folder}, overflowing), 1));
  CHECK(none["bitwise"] == true);
  CHECK(none["compared_steps"] == 0);
  const json trained = json::parse(graphpipe_output(with({"run", folder}, overflowing)));
  // Every second step may make an update, and the first ones overflow.
  CHECK(trained["skipped_steps"][0] == 2);
  CHECK(trained["loss_scales"][1] == 16777216);
  CHECK(trained["loss_scales"][2] == 8388608);
}

TEST_CASE("a resume in fp16 goes on with the scale, bit by bit, and under another plan") {
  const std::string folder = two_stages("fp16"), checkpoints = work_folder("precision_checkpoints");
  fs::remove_all(checkpoints);
  const std::string whole = checkpoints + ".whole.safetensors", resumed = checkpoints + ".resumed.safetensors";
  const json all = json::parse(graphpipe_output(run_words(folder, 14, with(kScaled, {"--save", whole}))));
  graphpipe_output(run_words(folder, 9, with(kScaled, {"--checkpoint", checkpoints, "--ema", "0.9"})));
  const json rest =
      json::parse(graphpipe_output(run_words(folder, 14, with(kScaled, {"--resume", checkpoints, "--save", resumed}))));
  CHECK(same_bytes(whole, resumed));
  CHECK(rest["loss_scales"] == json(std::vector<double>(all["loss_scales"].begin() + 9, all["loss_scales"].end())));
  CHECK(rest["skipped_steps"] == json({12}));
  const std::string other = work_folder("precision_other_plan");
  compile_recorded("fp16", other, {"--devices", "1"});
  const json moved = json::parse(graphpipe_output(run_words(other, 14, with(kScaled, {"--resume", checkpoints}))));
  CHECK(moved["loss_scales"] == rest["loss_scales"]);
}

TEST_CASE("a convnet and CLIP in 16 bits compute what one process computes") {
  for (const auto& [name, precision] :
       std::vector<std::pair<std::string, std::string>>{{"resnet", "bf16"}, {"clip_like", "fp16"}}) {
    CAPTURE(name);
    const Reference reference = read_reference(name);
    const std::string folder = work_folder("precision_" + name);
    compile(reference, folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--precision", precision});
    const json report = json::parse(verify(reference, folder));
    CHECK(report["bitwise"] == true);
    CHECK(report["by_tolerance"] == true);
    if (precision == "fp16") continue;  // its first steps overflow and make no update
    const json run = json::parse(graphpipe_output({"run", folder, "--data", reference.folder + "/data", "--steps", "5",
                                                   "--lr", "0.05", "--momentum", "0.9", "--json", "--quiet"}));
    CHECK(largest_relative(run["losses"].get<std::vector<double>>(), reference.losses) < 1e-2);
  }
}

TEST_CASE("a loss scale needs updates of whole steps") {
  const std::string folder = work_folder("precision_pipedream");
  compile_recorded("fp16", folder, {"--devices", "2", "--stages", "2", "--micro-batch", "2", "--policy", "pipedream"});
  graphpipe_output(run_words(folder, 2, {}), 3);
  graphpipe_output(run_words(folder, 2, {"--loss-scale", "0"}));
  graphpipe_output(run_words(folder, 2, {"--loss-scale", "3"}), 2);
}

TEST_CASE("a model of 16-bit parameters learns by steps that these cannot hold") {
  const std::string folder = work_folder("precision_bf16"), model = GRAPHPIPE_SOURCE_DIR "/tests/data/bf16/model.onnx";
  graphpipe_output({"compile", model, "--batch", "8", "--micro-batch", "2", "--loss", "mse:y,target", "--devices", "2",
                    "--stages", "2", "-o", folder, "--quiet"});
  const auto losses = [&](const Arguments& more) {
    return losses_of(
        graphpipe_output(with({"run", folder, "--steps", "60", "--lr", "3e-4", "--json", "--quiet"}, more)));
  };
  const std::vector<double> main = losses({}), without = losses({"--no-main-weights"});
  CHECK(main.front() == without.front());
  CHECK(main.front() - main.back() > 1.5 * (without.front() - without.back()));
  const std::string checkpoints = work_folder("precision_bf16_checkpoints");
  fs::remove_all(checkpoints);
  const Arguments ema = {"--ema", "0.99"};
  const auto run = [&](int steps, const Arguments& more) {
    graphpipe_output(
        with(with({"run", folder, "--steps", std::to_string(steps), "--lr", "3e-4", "--quiet"}, ema), more));
  };
  run(10, {"--save-ema", checkpoints + ".whole"});
  run(4, {"--checkpoint", checkpoints});
  run(10, {"--resume", checkpoints, "--save-ema", checkpoints + ".resumed"});
  CHECK(same_bytes(checkpoints + ".whole", checkpoints + ".resumed"));
}
