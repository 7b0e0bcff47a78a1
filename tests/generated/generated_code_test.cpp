// Generated text is compiled against LibTorch, run, and compared: with finite differences, and cut against uncut.

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "codegen/generate.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;
namespace fs = std::filesystem;

namespace {

struct Outcome {
  std::string talk;
  std::map<std::string, std::string> lines;  // first one or two words -> rest
};

std::string output_of(const std::string& command, int& status) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, got);
  status = WEXITSTATUS(pclose(pipe));
  return output;
}

/// One action per stage and phase: the tables are compiled here, not run.
ir::Schedule some_schedule(const ir::StageGraph& stages) {
  ir::Schedule schedule;
  schedule.slots.resize(stages.stages.size(), 1);
  for (ir::StageId stage : stages.stage_ids()) {
    ir::Action action;
    action.stage = static_cast<int32_t>(stage.index());
    action.range = {0, 3};
    schedule.programs.push_back({stages.stages[stage].choice.devices.front(), {action}});
  }
  return schedule;
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string compiler_flags(const fs::path& folder) {
  const std::string torch = GRAPHPIPE_LIBTORCH;
  return "-std=c++20 -Og -fPIC -Wall -Wextra -Werror -Wno-missing-field-initializers -I" + folder.string() + " -I" +
         GRAPHPIPE_SOURCE_DIR + " -isystem " + torch + "/include ";
}

// LibTorch's headers as the runtime has compiled them, where it has: most of what a file costs. They are compiled
// without -Wpedantic, so that files ask for it themselves.
std::string compiled_headers() {
  const std::string headers = GRAPHPIPE_COMPILED_HEADERS;
  return headers.empty() ? "" : "-Winvalid-pch -include " + headers + " ";
}

// Where the kernels are that the stages call.
std::string runtime_libraries() {
  std::string out;
  for (const std::string name : {"runtime", "wire", "support"})
    out += " " GRAPHPIPE_BINARY_DIR "/" + name + "/libgraphpipe_" + name + ".a";
  return out;
}

Outcome run_pipeline(const std::string& name, const ir::Graph& graph, const std::vector<size_t>& stage_of,
                     bool recompute, bool by_autograd = false) {
  const ir::PlanGraph plan = plan_of(graph, 6);
  const auto stages = stages_of(plan, stage_of, 3, recompute);
  REQUIRE(stages.ok());
  const auto files = codegen::generate(
      graph, plan, *stages, some_schedule(*stages),
      {.tool_version = "test", .model_digest = "00", .plan_digest = "11", .by_autograd = by_autograd});
  REQUIRE(files.ok());
  const fs::path folder = fs::path(GRAPHPIPE_BINARY_DIR) / "tests" / "generated_code" / name;
  fs::remove_all(folder);
  std::string includes, entries, tables;
  for (const codegen::SourceFile& file : *files) {
    write_file(folder / file.path, file.text);
    if (file.path.starts_with("stages/") && file.path.ends_with(".cpp")) includes += "#include \"" + file.path + "\"\n";
    if (file.path.starts_with("programs/") && file.path.ends_with(".cpp"))
      tables += " " + (folder / file.path).string();
  }
  // Stage files define tables of the same names in namespaces of their own, so one translation unit takes them all.
  for (ir::StageId stage : stages->stage_ids()) entries += text("&pipeline::stage", stage, "::entry, ");
  write_file(folder / "main.cpp",
             "#pragma GCC diagnostic warning \"-Wpedantic\"\n" + includes +
                 "#include <vector>\nconst std::vector<const graphpipe::runtime::StageEntry*> kStages = {" + entries +
                 "};\nconst bool kRecompute = " + (recompute ? "true" : "false") +
                 ";\n#include \"tests/generated/harness.inc\"\n");
  int status = 0;
  const std::string checks = output_of("g++ -fsyntax-only -Wpedantic " + compiler_flags(folder) + tables, status);
  CHECK_MESSAGE(status == 0, checks);
  const std::string torch = std::string(GRAPHPIPE_LIBTORCH) + "/lib";
  const std::string program = (folder / "program").string();
  const std::string built =
      output_of("g++ " + compiler_flags(folder) + compiled_headers() + (folder / "main.cpp").string() + " -o " +
                    program + runtime_libraries() + " " + torch + "/libtorch_cpu.so " + torch +
                    "/libc10.so -lgomp -Wl,-rpath," + torch + " -Wl,--unresolved-symbols=ignore-in-shared-libs",
                status);
  REQUIRE_MESSAGE(status == 0, built);
  Outcome outcome;
  outcome.talk = output_of("OMP_NUM_THREADS=1 " + program, status);
  CHECK_MESSAGE(status == 0, outcome.talk);
  std::istringstream lines(outcome.talk);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find(' ', line.starts_with("gradient ") ? 9 : 0);
    outcome.lines[line.substr(0, end)] = end == std::string::npos ? "" : line.substr(end + 1);
  }
  return outcome;
}

double difference(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.lines.contains("difference"), outcome.talk);
  return std::stod(outcome.lines.at("difference"));
}

std::vector<double> numbers(const std::string& line) {
  std::vector<double> result;
  std::istringstream words(line);
  for (std::string word; words >> word;) result.push_back(std::strtod(word.c_str(), nullptr));
  return result;
}

/// The same gradients up to rounding in float64.
void check_close(const Outcome& found, const Outcome& expected) {
  for (const auto& [name, line] : expected.lines) {
    if (!name.starts_with("gradient")) continue;
    CAPTURE(name);
    REQUIRE(found.lines.contains(name));
    const std::vector<double> a = numbers(found.lines.at(name)), b = numbers(line);
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("one stage: gradients are right to finite differences, and no slot is left full") {
  const ir::Graph graph = trained(branches(ir::DType::kFloat64), "mse", "y");
  const size_t nodes = plan_of(graph, 6).nodes.size();
  const Outcome whole = run_pipeline("branches_whole", graph, std::vector<size_t>(nodes, 0), false);
  CHECK(difference(whole) < 1e-7);
  CHECK_MESSAGE(whole.talk.find("left") == std::string::npos, whole.talk);

  const Outcome autograd = run_pipeline("branches_autograd", graph, std::vector<size_t>(nodes, 0), false, true);
  CHECK(autograd.lines.at("loss") == whole.lines.at("loss"));
  check_close(autograd, whole);

  // One stage per node, with recomputation: the same bits but where a weight's copies are summed over stages.
  std::vector<size_t> apart(nodes);
  for (size_t i = 0; i < nodes; ++i) apart[i] = i;
  const Outcome cut = run_pipeline("branches_apart", graph, apart, true);
  CHECK_MESSAGE(cut.talk.find("left") == std::string::npos, cut.talk);
  CHECK(cut.lines.at("loss") == whole.lines.at("loss"));
  check_close(cut, whole);
}

TEST_CASE("one gradient of two parameters reaches both") {
  const ir::Graph graph = trained(summed_weights(ir::DType::kFloat64), "mse", "y");
  const size_t nodes = plan_of(graph, 6).nodes.size();
  const Outcome whole = run_pipeline("summed_weights", graph, std::vector<size_t>(nodes, 0), false);
  CHECK(difference(whole) < 1e-7);
  CHECK(whole.lines.at("gradient base") == whole.lines.at("gradient change"));
}

TEST_CASE("cut without ties, the bits are those of one stage") {
  const ir::Graph graph = trained(mlp(ir::DType::kFloat64), "cross_entropy", "logits");
  const size_t nodes = plan_of(graph, 6).nodes.size();
  const Outcome whole = run_pipeline("mlp_whole", graph, std::vector<size_t>(nodes, 0), false);
  CHECK(difference(whole) < 1e-7);
  std::vector<size_t> halves(nodes, 1);
  for (size_t i = 0; i < nodes / 2; ++i) halves[i] = 0;
  const Outcome cut = run_pipeline("mlp_halves", graph, halves, false);
  CHECK(cut.talk == whole.talk);
}
