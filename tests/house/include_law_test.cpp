#include <doctest/doctest.h>

#include <functional>

#include "support/text.h"
#include "tests/house/source_tree.h"

namespace graphpipe::tests {
namespace {

using Folders = std::set<std::string>;

// Third-party headers, by the start of their path: who may include them, and whether in headers too.
struct ThirdParty {
  std::string_view prefix;
  Folders folders;
  Folders headers;
};

const std::vector<ThirdParty>& third_parties() {
  static const std::vector<ThirdParty> rows = {
      {"boost/", {"ir", "passes", "partitioner", "scheduler", "tests"}, {}},
      {"google/protobuf/", {"files", "frontend", "tests", "cmake"}, {}},
      {"absl/", {"files"}, {}},
      {"onnx/", {"frontend", "tests"}, {}},
      {"nlohmann/", {"files", "tests"}, {}},
      {"CLI/", {"driver"}, {}},
      {"toml++/", {"driver"}, {}},
      {"fmt/", {"driver"}, {}},
      {"openssl/", {"driver", "runtime", "tests"}, {}},
      {"doctest/", {"tests"}, {"tests"}},
  };
  return rows;
}

constexpr std::string_view kTorchPrefixes[] = {"ATen/", "torch/", "c10/", "caffe2/", "cuda", "nccl", "nvtx"};

bool is_torch(const Include& include) {
  return std::ranges::any_of(kTorchPrefixes, [&](std::string_view p) { return include.target.starts_with(p); });
}

bool may_see_torch(const SourceFile& file) {
  return file.folder() == "runtime" || file.path.starts_with("tests/runtime/") || file.path.starts_with("tests/gpu/") ||
         file.path.starts_with("tests/ops_run/") || file.path.starts_with("tests/conformance/") ||
         file.path.starts_with("bench/kernels/");
}

// Everything that the folders lead to.
Folders closure(const Folders& start, const std::map<std::string, Folders>& law) {
  Folders all;
  const std::function<void(const std::string&)> visit = [&](const std::string& folder) {
    if (!all.insert(folder).second) return;
    if (const auto row = law.find(folder); row != law.end())
      for (const std::string& next : row->second) visit(next);
  };
  for (const std::string& folder : start) visit(folder);
  return all;
}

template <typename Visit>
void for_each_include(Visit visit) {
  for (const SourceFile& file : project_files())
    if (file.is_cpp())
      for (const Include& include : includes_of(file)) visit(file, include);
}

TEST_CASE("the law that the folders declare is the one of the design") {
  const auto law = include_law();
  for (const std::string folder : {"support", "wire", "ir", "files", "ops", "frontend", "passes", "cost", "partitioner",
                                   "scheduler", "codegen", "driver", "runtime"}) {
    CAPTURE(folder);
    CHECK(law.contains(folder));
  }
  for (const auto& [folder, deps] : law) {
    CAPTURE(folder);
    for (const std::string& dep : deps) {
      CAPTURE(dep);
      CHECK(law.contains(dep));
      CHECK_FALSE(closure(law.at(dep), law).contains(folder));  // no cycles
    }
  }
  CHECK(law.at("support").empty());
  const Folders ground = {"support", "wire"};
  for (const std::string folder : {"wire", "ir", "runtime"}) CHECK(std::ranges::includes(ground, law.at(folder)));
  const Folders verbs = {"frontend", "passes", "partitioner", "scheduler", "codegen"};
  for (const std::string& verb : verbs)
    for (const std::string& dep : law.at(verb)) {
      CAPTURE(verb);
      CAPTURE(dep);
      CHECK_FALSE(verbs.contains(dep));
      CHECK(dep != "driver");
      CHECK(dep != "runtime");
    }
  CHECK_FALSE(law.at("driver").contains("runtime"));
  CHECK_FALSE(law.at("scheduler").contains("ops"));
  CHECK_FALSE(law.at("partitioner").contains("ops"));
}

TEST_CASE("a folder includes itself and what it declares, nothing else") {
  const auto law = include_law();
  for_each_include([&](const SourceFile& file, const Include& include) {
    const auto row = law.find(file.folder());
    if (include.angled || row == law.end()) return;
    const std::string target = include.target.substr(0, include.target.find('/'));
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    CHECK((target == file.folder() || row->second.contains(target)));
  });
}

TEST_CASE("a test includes what its program links, and tests") {
  const auto law = include_law();
  std::map<std::string, Folders> links;
  for (const SourceFile& file : project_files())
    if (file.path.starts_with("tests/") && file.path.ends_with("CMakeLists.txt"))
      for (const auto& [name, words] : calls_of(file, "graphpipe_test")) links[name] = closure(deps_in(words), law);
  REQUIRE_FALSE(links.empty());
  // It compiles the readers of the runtime that need no LibTorch itself, so that they are fuzzed without one.
  links["fuzz"].insert("runtime");
  for_each_include([&](const SourceFile& file, const Include& include) {
    if (include.angled || file.folder() != "tests") return;
    const size_t start = 6;
    const std::string suite = file.path.substr(start, file.path.find('/', start) - start);
    const auto row = links.find(suite);
    // Builders in tests/support serve several programs.
    if (row == links.end() || (suite == "support" && file.has_extension(".h"))) return;
    const std::string target = include.target.substr(0, include.target.find('/'));
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    CHECK((target == "tests" || row->second.contains(target)));
  });
}

// What a checker may include beside the languages and the ground: words that say what is checked, no code that computes
// it.
TEST_CASE("planners' checkers include nothing of what they check") {
  const std::string models = "partitioner/cost_models/";
  const std::set<std::string> words = {
      "partitioner/check_plan.h", models + "check_unit_plan.h", models + "independent_score.h",
      models + "cost_model.h",    models + "unit_prices.h",     models + "unit_request.h",
      models + "quirks.h",        "partitioner/planner.h"};
  size_t checked = 0;
  for_each_include([&](const SourceFile& file, const Include& include) {
    const std::string stem = file.path.substr(0, file.path.rfind('.'));
    if (include.angled || (stem != "partitioner/check_plan" && stem != models + "check_unit_plan" &&
                           stem != models + "independent_score" && stem != models + "independent_dapple" &&
                           stem != models + "unit_request"))
      return;
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    const bool is_ground = include.target.starts_with("ir/") || include.target.starts_with("support/");
    CHECK((is_ground || words.contains(include.target)));
    ++checked;
  });
  CHECK(checked > 10);
}

TEST_CASE("no planner includes what checks it") {
  size_t seen = 0;
  for_each_include([&](const SourceFile& file, const Include& include) {
    if (include.angled || !include.target.starts_with("partitioner/cost_models/independent_")) return;
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    CHECK((file.path.starts_with("partitioner/cost_models/independent_") ||
           file.path == "partitioner/cost_models/check_unit_plan.cpp" || file.folder() == "tests"));
    ++seen;
  });
  CHECK(seen > 1);
}

// Words that say what is checked, and the numbers that programs reduce by. What makes an order, its transfers, updates
// and slots, what simulates them and what counts their memory, it does not know.
TEST_CASE("the validator of schedules includes nothing that orders, lowers, simulates or measures them") {
  const std::set<std::string> words = {"scheduler/action_problem.h", "scheduler/terms.h",
                                       "scheduler/memory/memory_options.h", "wire/all_reduce.h"};
  size_t checked = 0;
  for_each_include([&](const SourceFile& file, const Include& include) {
    if (include.angled || !file.path.starts_with("scheduler/validate/")) return;
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    const std::string folder = include.target.substr(0, include.target.find('/'));
    const bool is_own = include.target.starts_with("scheduler/validate/");
    CHECK((folder == "ir" || folder == "support" || is_own || words.contains(include.target)));
    ++checked;
  });
  CHECK(checked > 10);
}

TEST_CASE("quoted includes start at the project root and lead to a file") {
  const std::filesystem::path root(GRAPHPIPE_SOURCE_DIR);
  for_each_include([&](const SourceFile& file, const Include& include) {
    if (include.angled) return;
    std::string target = include.target;
    if (target.ends_with(".pb.h")) target.replace(target.size() - 5, 5, ".proto");
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    CHECK(target.find("..") == std::string::npos);
    CHECK(std::filesystem::is_regular_file(root / target));
    // Schemas of files/ are for its .cpp files.
    if (include.target.ends_with(".pb.h")) CHECK((file.folder() == "files" && file.has_extension(".cpp")));
  });
}

TEST_CASE("only the runtime sees LibTorch, CUDA and NCCL") {
  for_each_include([&](const SourceFile& file, const Include& include) {
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    if (is_torch(include)) CHECK(may_see_torch(file));
    CHECK(include.target != "torch/torch.h");
    CHECK(include.target != "ATen/ATen.h");
  });
}

TEST_CASE("other third-party headers stay in the .cpp files of the folders that use them") {
  for_each_include([&](const SourceFile& file, const Include& include) {
    if (!include.angled || is_torch(include)) return;
    const std::string edge = text(file.path, ":", include.line, " includes ", include.target);
    CAPTURE(edge);
    for (const ThirdParty& row : third_parties()) {
      if (!include.target.starts_with(row.prefix)) continue;
      CHECK(row.folders.contains(file.folder()));
      const bool anywhere = row.headers.contains(file.path) || row.headers.contains(file.folder());
      CHECK((anywhere || file.has_extension(".cpp") || file.folder() == "tests"));
      return;
    }
    // What is left is the standard library and the system.
    const size_t slash = include.target.find('/');
    static const Folders kSystem = {"sys", "linux", "net", "netinet", "arpa"};
    CHECK((slash == std::string::npos || kSystem.contains(include.target.substr(0, slash))));
  });
}

}  // namespace
}  // namespace graphpipe::tests
