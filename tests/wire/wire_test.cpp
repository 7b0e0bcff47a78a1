#include <doctest/doctest.h>

#include <limits>

#include "wire/manifest.h"
#include "wire/problem_line.h"
#include "wire/result_lines.h"
#include "wire/run_options.h"

using namespace graphpipe::wire;

namespace {

const std::string kDigest(64, 'a');

bool refuses(const std::string& text) {
  Manifest manifest;
  std::string problem;
  return !parse_manifest(text, manifest, problem) && !problem.empty();
}

std::string manifest_with(const std::string& line) {
  return "graphpipe-manifest 1\nplan " + kDigest + "\n" + line + "\n";
}

}  // namespace

TEST_CASE("a number that a flag does not take is answered with those that it takes") {
  const auto problem = [](const char* flag, const char* word) {
    RunOptions options;
    return parse_run_options({flag, word}, options);
  };
  CHECK(problem("--lr", "-1") == "--lr does not take '-1'; it takes X, a number, 0 or more");
  CHECK(problem("--keep", "0") == "--keep does not take '0'; it takes N, a whole number, 1 or more");
  CHECK(problem("--seed", "1.5") == "--seed does not take '1.5'; it takes N, a whole number, 0 or more");
  CHECK(problem("--betas", "2") == "--betas does not take '2'; it takes X,Y");
  CHECK(problem("--data", "") == "--data does not take ''; it takes DIR");
}

TEST_CASE("a manifest reads back as it was printed") {
  const Manifest manifest{
      kDigest,
      {{"weights.safetensors", 12, std::string(64, '0')}, {"stages/a file with spaces.cpp", 0, std::string(64, 'f')}}};
  Manifest again;
  std::string problem;
  CHECK(parse_manifest(print_manifest(manifest), again, problem));
  CHECK(again == manifest);
}

TEST_CASE("a manifest that is hostile or malformed is refused") {
  Manifest manifest;
  std::string problem;
  CHECK(parse_manifest(manifest_with("file " + kDigest + " 5 a/b"), manifest, problem));
  for (const char* path : {"/etc/passwd", "../x", "a/../../x", "a//b", "", "./a", "a/"}) {
    CAPTURE(path);
    CHECK(refuses(manifest_with("file " + kDigest + " 5 " + path)));
  }
  for (const char* size : {"-1", "", "5x", "99999999999999999999"}) {
    CAPTURE(size);
    CHECK(refuses(manifest_with("file " + kDigest + " " + size + " a")));
  }
  CHECK(refuses(manifest_with("file " + std::string(63, 'a') + " 5 a")));
  CHECK(refuses(manifest_with("file " + kDigest + " 5 a\nfile " + kDigest + " 5 a")));
  CHECK(refuses(manifest_with("note hello")));
  CHECK(refuses("graphpipe-manifest 2\nplan " + kDigest + "\n"));
  CHECK(refuses("graphpipe-manifest 1\n"));
  CHECK(refuses(""));
}

TEST_CASE("options parse back from the arguments made from them") {
  RunOptions options;
  CHECK(to_arguments(options).empty());
  options.data.folder = "some folder";
  options.data.steps = 7;
  options.optimizer.learning_rate = 0.1;
  options.optimizer.weight_decay = 0;
  options.optimizer.betas = {0.85, 0.5};
  options.optimizer.clip_norm = 1.5;
  options.data.seed = std::numeric_limits<uint64_t>::max();
  options.output.save = "out=1.safetensors";
  options.output.json = true;
  options.launch.rank = 3;
  options.launch.parent = 4711;
  options.launch.master_port = 65535;
  options.launch.rendezvous_fds = {5, 17};
  options.launch.stall_timeout = 2.5;
  options.watch.log = "log.csv";
  options.watch.metrics = "m.jsonl";
  options.watch.tensorboard = "board";
  options.watch.on_anomaly = "skip";
  options.watch.max_loss_factor = 12.5;
  RunOptions again;
  CHECK(parse_run_options(to_arguments(options), again) == "");
  CHECK(again == options);
}

TEST_CASE("arguments take a value after a space or an equals sign, and wrong ones are named") {
  RunOptions options;
  CHECK(parse_run_options({"--lr=0.5", "--steps", "9", "--betas=0.5,0.75"}, options) == "");
  CHECK(options.optimizer.learning_rate == 0.5);
  CHECK(options.data.steps == 9);
  CHECK(options.optimizer.betas == Betas{0.5, 0.75});
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{{"--unknown"},
                                                                                   {"--steps"},
                                                                                   {"--steps", "x"},
                                                                                   {"--steps=-1"},
                                                                                   {"--lr=nan"},
                                                                                   {"--lr", "1e999"},
                                                                                   {"--json=1"},
                                                                                   {"--log", "log.txt"},
                                                                                   {"--on-anomaly", "stop"},
                                                                                   {"--max-loss-factor", "1"},
                                                                                   {"--betas", "0.9"},
                                                                                   {"--betas", "1,1"},
                                                                                   {"--master-port", "70000"},
                                                                                   {"--master-port", "0"},
                                                                                   {"--master-port", "29500x"},
                                                                                   {"file"}}) {
    CAPTURE(bad[0]);
    CHECK(parse_run_options(bad, options).find(bad[0].substr(0, bad[0].find('='))) != std::string::npos);
  }
  for (const char* flag : {"--data", "--clip-norm", "--save-gradients", "--stall-timeout", "--transport"})
    CHECK(run_options_help().find(flag) != std::string::npos);
}

TEST_CASE("results are one flat JSON object whose numbers read back to the bit") {
  RunResult result{.plan = "p",
                   .transport = "shm",
                   .devices = 2,
                   .losses = {0.1, 1.0 / 3},
                   .step_seconds = {1, 2},
                   .peak_bytes = {100, 200}};
  const std::string json = to_json(result);
  CHECK(json.find("\"losses\": [0.10000000000000001, 0.33333333333333331]") != std::string::npos);
  CHECK(json.find("\"peak_bytes\": [100, 200]") != std::string::npos);
  CHECK(json.find("\"complete\": true") != std::string::npos);
  CHECK(json.find("gradient_norms") == std::string::npos);
  CHECK(json.back() == '\n');
  result.losses = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
  CHECK(to_json(result).find("\"losses\": [null, null]") != std::string::npos);
  result.losses = {0.5, 0.25};
  CHECK(step_line(result, 7) == "step 2 of 7 loss 0.25 (2.000 s, 8 s left)");
  result.step_samples = 128;
  CHECK(step_line(result, 7) == "step 2 of 7 loss 0.25 (2.000 s, 64 samples/s, 8 s left)");
  CHECK(step_line(result, 1002) == "step 2 of 1002 loss 0.25 (2.000 s, 64 samples/s, 25 min left)");
  CHECK(step_line(result, 10'002) == "step 2 of 10002 loss 0.25 (2.000 s, 64 samples/s, 4 h 10 min left)");
  CHECK(is_step_line(step_line(result, 7)));
  result.losses = {0.5, -std::numeric_limits<double>::quiet_NaN()};
  CHECK(step_line(result, 7) == "step 2 of 7 loss nan (2.000 s, 64 samples/s, 8 s left)");
  result.eval_steps = {2};
  result.eval_losses = {-std::numeric_limits<double>::quiet_NaN()};
  CHECK(eval_line(result) == "evaluation after step 2: loss nan");
  result.losses = {0.5, 0.25};
  result.eval_steps = {};
  result.eval_losses = {};
  CHECK_FALSE(is_step_line(peak_lines(result)));
  CHECK(peak_lines(result) == "device 0 peak 0.00 MiB\ndevice 1 peak 0.00 MiB\n");
  result.arenas = {{}, {.bytes = 3 << 20, .steps = 5, .fallback_steps = 1, .fallbacks = 0, .page_faults = 2}};
  CHECK(peak_lines(result) ==
        "device 0 peak 0.00 MiB\ndevice 1 peak 0.00 MiB, arena 3.00 MiB: 1 of 5 steps allocated outside of it, the "
        "last 0 "
        "times, with 2 page faults\n");
  result.arenas[1].planned_bytes = 3 << 20;
  CHECK(peak_lines(result).find("arena 3.00 MiB as planned: 1 of 5") != std::string::npos);
  result.arenas[1].planned_bytes = 2 << 20;
  CHECK(peak_lines(result).find("arena 3.00 MiB (planned 2.00 MiB): 1 of 5") != std::string::npos);
  CHECK(to_json(result).find("\"planned_arena_bytes\": [0, 2097152]") != std::string::npos);
  CHECK(to_json(result).find("\"arena_steps\": [0, 5], \"fallback_steps\": [0, 1], "
                             "\"fallbacks\": [0, 0], \"page_faults\": [0, 2]") != std::string::npos);
  CHECK(json.find("arena") == std::string::npos);
  result.arenas = {};
  CHECK(json.find("graph_calls") == std::string::npos);
  result.graphs = {{}, {.calls = 4, .graphs = 3}};
  CHECK(to_json(result).find("\"stage_calls\": [0, 4], \"graph_calls\": [0, 3]") != std::string::npos);
  CHECK(peak_lines(result) ==
        "device 0 peak 0.00 MiB\ndevice 1 peak 0.00 MiB, 3 of 4 stage calls of the last step in CUDA graphs\n");
  result.graphs = {};
  CHECK(json.find("skipped_steps") == std::string::npos);
  result.skipped_steps = {2};
  CHECK(to_json(result).find("\"skipped_steps\": [2], \"peak_bytes\"") != std::string::npos);
  result.losses = {};
  CHECK(to_json(result).find("\"steps\": 2, \"first_step\": 1, \"losses\": []") != std::string::npos);
  CHECK(step_line(result, 2) == "step 2 of 2 (2.000 s, 64 samples/s)");
}

TEST_CASE("a problem reads back from the line that tells a launcher of it, and no other line is one") {
  const graphpipe::Diagnostic problem{.code = graphpipe::Code::kBadData,
                                      .severity = graphpipe::Severity::kWarning,
                                      .origin = graphpipe::ModelText("a\tb"),
                                      .message = "two\nlines",
                                      .hint = ""};
  const std::string line = problem_line(problem);
  CHECK(line.find('\n') == std::string::npos);
  const auto read = parse_problem_line(line);
  REQUIRE(read);
  CHECK(read->code == problem.code);
  CHECK(read->severity == problem.severity);
  CHECK(read->origin == graphpipe::ModelText("a b"));
  CHECK(read->message == "two lines");
  CHECK(read->hint.empty());
  for (const char* other : {"", "step 1 of 2 loss 0.5", "graphpipe-problem", "graphpipe-problem\tno-code\t0\t\tm\th",
                            "graphpipe-problem\tusage\t9\t\tm\th", "graphpipe-problem\tusage\t0\t\tm\th\tmore"})
    CHECK_FALSE(parse_problem_line(other));
}
