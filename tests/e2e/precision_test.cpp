// Training in 16 bits, from the command line: against PyTorch's autocast and GradScaler
// (tests/data/make_precision_references.py).

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/pipeline_run.h"

using namespace graphpipe::tests;
using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

const std::string kRecorded = GRAPHPIPE_SOURCE_DIR "/tests/data/precision";

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The recorded transformer, compiled in this precision.
void compile_recorded(const std::string& precision, const std::string& folder, const Words& more) {
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
Words run_words(const std::string& folder, int steps, const Words& more) {
  return with({"run", folder, "--data", kRecorded + "/data", "--steps", std::to_string(steps), "--lr", "0.05",
               "--momentum", "0.9", "--json", "--quiet"},
              more);
}

const Words kScaled = {"--loss-scale", "16777216", "--loss-scale-growth", "5"};

}  // namespace

TEST_CASE("bfloat16 and float16 train as PyTorch's autocast and GradScaler do, overflows at the same steps") {
  const json reference = recorded();
  for (const std::string precision : {"bf16", "fp16"}) {
    CAPTURE(precision);
    const std::string& folder = two_stages(precision);
    const Words scale = precision == "fp16" ? kScaled : Words();
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
