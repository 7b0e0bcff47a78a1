#include "tests/house/source_tree.h"

#include <doctest/doctest.h>

namespace graphpipe::tests {
namespace {

TEST_CASE("include lines are read as the compiler reads them") {
  const SourceFile file{
      "a/b.cpp", {"#include <vector>", "  #include <indented>", "#include \"ir/graph.h\"  // why", "// #include <x>"}};
  const std::vector<Include> includes = includes_of(file);
  REQUIRE(includes.size() == 2);
  CHECK(includes[0].target == "vector");
  CHECK(includes[0].angled);
  CHECK(includes[1].target == "ir/graph.h");
  CHECK(includes[1].line == 3);
}

TEST_CASE("text in raw strings is no code") {
  const SourceFile file{"a/b.cpp",
                        {"text = R\"x(", "#include <no>", ")\" not yet", ")x\"; more = R\"(a)\" R\"(", "#include <no>",
                         ")\";", "#include <yes>"}};
  const std::vector<Include> includes = includes_of(file);
  REQUIRE(includes.size() == 1);
  CHECK(includes[0].target == "yes");
}

TEST_CASE("calls of a helper are read over several lines, without comments") {
  const SourceFile file{"a/CMakeLists.txt",
                        {"graphpipe_library(driver DEPS ir # not wire", "  support", "  THIRD_PARTY fmt::fmt)"}};
  const auto calls = calls_of(file, "graphpipe_library");
  REQUIRE(calls.contains("driver"));
  CHECK(deps_in(calls.at("driver")) == std::set<std::string>{"ir", "support"});
}

TEST_CASE("the project is found") {
  CHECK(project_files().size() > 50);
  for (const SourceFile& file : project_files()) CHECK_FALSE(file.path.starts_with("build/"));
}

}  // namespace
}  // namespace graphpipe::tests
