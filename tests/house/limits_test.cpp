#include <doctest/doctest.h>

#include <set>

#include "support/text.h"
#include "tests/house/source_tree.h"

namespace graphpipe::tests {
namespace {

constexpr size_t kMaxLines = 500;

bool is_code(const SourceFile& file) {
  return file.is_cpp() || file.has_extension(".py") || file.has_extension(".sh") || file.has_extension(".proto") ||
         file.has_extension(".cmake") || (file.folder() == "scripts" && file.path.find('.') == std::string::npos);
}

TEST_CASE("no file of ours is longer than a reader's patience") {
  size_t seen = 0;
  for (const SourceFile& file : project_files()) {
    if (!is_code(file)) continue;
    ++seen;
    CAPTURE(file.path);
    CHECK(file.lines.size() <= kMaxLines);
  }
  CHECK(seen > 50);
}

TEST_CASE("every header guards itself and says what it is") {
  for (const SourceFile& file : project_files()) {
    if (!file.has_extension(".h")) continue;
    CAPTURE(file.path);
    REQUIRE_FALSE(file.lines.empty());
    CHECK(file.lines[0] == "#pragma once");
    CHECK(std::ranges::any_of(file.lines, [](const std::string& line) { return line.starts_with("//"); }));
  }
}

TEST_CASE("no file names a place of the machine that it was written on") {
  // Written in pieces, so that this file does not name them itself.
  const std::string slash = "/";
  const std::vector<std::string> places = {slash + "work/", slash + "home/", slash + "root/", slash + "Users/"};
  for (const SourceFile& file : project_files()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& place : places) {
        const std::string& line = file.lines[i];
        const size_t at = line.find(place);
        // After a variable the name is a place inside another.
        const bool starts = at != std::string::npos &&
                            (at == 0 || std::string_view(" \t\"'=(:<`,").find(line[at - 1]) != std::string_view::npos);
        const std::string where = text(file.path, ":", i + 1);
        CAPTURE(where);
        CHECK_FALSE(starts);
      }
    }
  }
}

TEST_CASE("nothing is left for later in the code") {
  const std::vector<std::string> marks = {std::string("TO") + "DO", std::string("FIX") + "ME",
                                          std::string("XX") + "X "};
  for (const SourceFile& file : project_files()) {
    if (!is_code(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& mark : marks) {
        const std::string place = text(file.path, ":", i + 1);
        CAPTURE(place);
        CHECK(file.lines[i].find(mark) == std::string::npos);
      }
    }
  }
}

TEST_CASE("what the fuzz preset builds is what Clang 14 compiles: no algorithm whose result is a subrange, no view") {
  // With GCC 12's library; the preset is built by nobody who has no Clang.
  const std::vector<std::string> algorithms = {"partition", "stable_partition", "remove",      "remove_if", "unique",
                                               "rotate",    "search",           "equal_range", "find_end",  "subrange"};
  const std::set<std::string> others = {"runtime", "driver", "partitioner", "codegen", "bench"};
  for (const SourceFile& file : project_files()) {
    if (!file.is_cpp() || others.contains(file.folder()) || file.path == "tests/house/limits_test.cpp") continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string place = text(file.path, ":", i + 1);
      CAPTURE(place);
      for (const std::string& algorithm : algorithms)
        CHECK(file.lines[i].find("ranges::" + algorithm + "(") == std::string::npos);
      CHECK(file.lines[i].find("views::") == std::string::npos);
    }
  }
}

TEST_CASE("code is written in ASCII, so that nothing in it looks like something else") {
  for (const SourceFile& file : project_files()) {
    if (!file.is_cpp()) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const bool ascii = std::ranges::all_of(file.lines[i], [](char c) { return c >= 0x20 && c < 0x7f; });
      const std::string place = text(file.path, ":", i + 1);
      CAPTURE(place);
      CHECK(ascii);
    }
  }
}

}  // namespace
}  // namespace graphpipe::tests
