// The recipes of CONTRIBUTING.md say which files one more thing of a kind takes. For one thing of each kind that is there,
// the files that name it are the ones that its recipe lists.

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/house/source_tree.h"

using namespace graphpipe::tests;

namespace {

/// A file that names the thing, and how the recipe writes its path.
struct NamedIn {
  std::string file, as_written;
};

struct Recipe {
  /// The heading under "Recipes".
  std::string heading;
  /// What names the thing in code, as a whole word.
  std::string name;
  std::vector<NamedIn> files;
};

const std::vector<Recipe> kRecipes = {
    {"An operator", "\"Softsign\"", {{"ops/unary.cpp", "family's file in `ops/`"}}},
    {"A loss",
     "kContrastiveLoss",
     {{"passes/losses/contrastive.cpp", "`passes/losses/<name>.cpp`"},
      {"passes/losses/registry.cpp", "`passes/losses/registry.cpp`"}}},
    {"A planner",
     "plan_torchgpipe",
     {{"partitioner/registry.cpp", "`partitioner/registry.cpp`"},
      {"partitioner/torchgpipe/planner.cpp", "`partitioner/<name>/planner.{h,cpp}`"},
      {"partitioner/torchgpipe/planner.h", "`partitioner/<name>/planner.{h,cpp}`"}}},
    {"A profile format",
     "read_pipedream_profile",
     {{"files/pipedream_profile.cpp", "`files/<name>_profile.{h,cpp}`"},
      {"files/pipedream_profile.h", "`files/<name>_profile.{h,cpp}`"},
      {"files/profile_formats.cpp", "`files/profile_formats.cpp`"}}},
    {"A profile format",
     "kPipeDream",
     {{"files/pipedream_profile.cpp", "`files/<name>_profile.{h,cpp}`"},
      {"ir/imported_profile.h", "`ir::ProfileFormat`"}}},
    {"A scheduling policy",
     "order_chimera",
     {{"scheduler/policies/dual_pipe.cpp", "`scheduler/policies/<name>.cpp`"},
      {"scheduler/policies/policies.cpp", "`scheduler/policies/policies.cpp`"},
      {"scheduler/policies/policies.h", "`scheduler/policies/policies.h`"}}},
    {"A transport",
     "open_nccl",
     {{"runtime/transport/nccl.cpp", "`runtime/transport/<name>.cpp`"},
      {"runtime/transport/no_nccl.cpp", "`no_<name>.cpp`"},
      {"runtime/transport/transports.cpp", "`runtime/transport/transports.cpp`"},
      {"runtime/transport/transports.h", "`runtime/transport/transports.h`"}}},
    {"An optimizer",
     "lamb_rule",
     {{"runtime/optimizers/lamb.cpp", "`runtime/optimizers/<name>.cpp`"},
      {"runtime/optimizers/registry.cpp", "`runtime/optimizers/registry.cpp`"}}},
    {"An optimizer",
     "\"lamb\"",
     {{"runtime/optimizers/lamb.cpp", "`runtime/optimizers/<name>.cpp`"},
      {"wire/optimizers.cpp", "`wire/optimizers.cpp`"}}},
    {"A flag of `run`", "\"--tensorboard\"", {{"wire/run/watch.cpp", "`wire/run/`"}}},
};

bool is_word_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool names(const std::string& line, const std::string& word) {
  for (size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_part(word.front()) || !is_word_part(line[at - 1]);
    if (begins && (end == line.size() || !is_word_part(word.back()) || !is_word_part(line[end]))) return true;
  }
  return false;
}

/// Code of the project, tests left out, that names the word; by path.
std::vector<std::string> files_that_name(const std::string& word) {
  std::vector<std::string> found;
  for (const SourceFile& file : project_files())
    if (file.is_cpp() && file.folder() != "tests" &&
        std::ranges::any_of(file.lines, [&](const std::string& line) { return names(line, word); }))
      found.push_back(file.path);
  return found;
}

/// The text under a heading of the third level, in one line.
std::string section(const std::string& heading) {
  const auto file = std::ranges::find(project_files(), "CONTRIBUTING.md", &SourceFile::path);
  REQUIRE(file != project_files().end());
  std::string text;
  bool inside = false;
  for (const std::string& line : file->lines) {
    if (line.starts_with("#")) inside = line == "### " + heading;
    else if (inside) text += line + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("a thing of each kind is named in the files that its recipe lists, and in no others") {
  for (const Recipe& recipe : kRecipes) {
    CAPTURE(recipe.heading);
    CAPTURE(recipe.name);
    const std::string text = section(recipe.heading);
    CHECK_FALSE(text.empty());
    std::vector<std::string> expected;
    for (const NamedIn& named : recipe.files) {
      CAPTURE(named.as_written);
      CHECK(text.find(named.as_written) != std::string::npos);
      expected.push_back(named.file);
    }
    CHECK(files_that_name(recipe.name) == expected);
  }
}

TEST_CASE("a name is found as a whole word only") {
  CHECK(names("{\"x\", plan_alpa},", "plan_alpa"));
  CHECK_FALSE(names("plan_alpaca(request)", "plan_alpa"));
  CHECK(names("replan_alpa(plan_alpa)", "plan_alpa"));
  CHECK_FALSE(files_that_name("project_files_of_no_name").size() > 0);
}
