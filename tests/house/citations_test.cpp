// What a comment, a test or a document cites is in the repository, section and all.

#include <doctest/doctest.h>

#include <map>
#include <regex>

#include "support/text.h"
#include "tests/house/source_tree.h"

namespace graphpipe::tests {
namespace {

/// Line by line, without what begins a comment, so that a citation may go on in the next line.
struct RunningText {
  std::string text;
  std::vector<size_t> line_of;  // by character

  explicit RunningText(const SourceFile& file) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      size_t start = line.find_first_not_of(" \t");
      if (file.is_cpp() && start != std::string::npos && line.compare(start, 2, "//") == 0)
        start = line.find_first_not_of("/ \t", start);
      text += " " + (start == std::string::npos ? std::string() : line.substr(start));
      line_of.resize(text.size(), i + 1);
    }
  }
};

/// "7", "2.6": the numbers that the headings of a document begin with.
std::set<std::string> sections_of(const SourceFile& document) {
  static const std::regex kHeading(R"(#+ (\d+(?:\.\d+)?)\.? .*)");
  std::set<std::string> sections;
  std::smatch match;
  for (const std::string& line : document.lines)
    if (std::regex_match(line, match, kHeading)) sections.insert(match[1]);
  return sections;
}

const SourceFile* document(const std::string& path) {
  for (const SourceFile& file : project_files())
    if (file.path == path) return &file;
  return nullptr;
}

/// What is wrong with the citations of a file, as "line N: ...".
std::vector<std::string> bad_citations(const SourceFile& file) {
  static const std::regex kCitation(
      R"(docs/(\w+\.md)\b`?(?:,? sections? (\d+(?:\.\d+)?)(?: (?:and|to) (\d+(?:\.\d+)?))?)?)");
  std::vector<std::string> problems;
  const RunningText running(file);
  for (std::sregex_iterator it(running.text.begin(), running.text.end(), kCitation), end; it != end; ++it) {
    const std::string place = text("line ", running.line_of[static_cast<size_t>(it->position())], ": ");
    const SourceFile* cited = document("docs/" + it->str(1));
    if (cited == nullptr) problems.push_back(place + it->str(0) + " does not exist");
    for (const size_t group : {2, 3})
      if (cited != nullptr && (*it)[group].matched && !sections_of(*cited).contains(it->str(group)))
        problems.push_back(text(place, cited->path, " has no section ", it->str(group)));
  }
  // Written in pieces, so that this file does not cite them itself.
  static const std::regex kElsewhere(std::string(R"((\bspecs)") + R"([:/]|(?:^|[^/\w])semantics)" +
                                     R"(, section|\.\./)" + "shared)");
  for (std::sregex_iterator it(running.text.begin(), running.text.end(), kElsewhere), end; it != end; ++it)
    problems.push_back(text("line ", running.line_of[static_cast<size_t>(it->position())], ": '", it->str(0),
                            "' is not in the repository: cite a page of docs/ with its section, or a paper"));
  return problems;
}

/// Sources and documents that the text of a file names by their path from the root, and that are not there.
std::vector<std::string> missing_paths(const SourceFile& file) {
  static const std::regex kPath(
      R"((?:^|[^\w/.-])((?:support|wire|ir|files|ops|frontend|passes|cost|partitioner|scheduler|codegen|runtime|driver|)"
      R"(tests|bench|docs|cmake)/[\w/]+\.(?:h|cpp|py|md|proto|csv))\b)");
  std::vector<std::string> problems;
  for (size_t i = 0; i < file.lines.size(); ++i)
    for (std::sregex_iterator it(file.lines[i].begin(), file.lines[i].end(), kPath), end; it != end; ++it)
      if (!std::filesystem::exists(std::filesystem::path(GRAPHPIPE_SOURCE_DIR) / it->str(1)))
        problems.push_back(text("line ", i + 1, ": ", it->str(1), " does not exist"));
  return problems;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST_CASE("citations are found, also over two lines, and wrong ones are refused") {
  const std::string pages = "docs/";
  const auto problems = [](std::vector<std::string> lines) {
    return joined(bad_citations(SourceFile{"a/b.h", std::move(lines)}));
  };
  CHECK(problems({"// (" + pages + "schedules.md, section 7)"}).empty());
  CHECK(problems({"  /// as " + pages + "schedules.md, sections 4 and 2.6 say"}).empty());
  CHECK(problems({"// of " + pages + "semantics.md,", "// section 99 holds"}) ==
        "line 1: docs/semantics.md has no section 99\n");
  CHECK(problems({"// x", "// see " + pages + "nowhere.md"}) == "line 2: " + pages + "nowhere.md does not exist\n");
  CHECK(problems({std::string("// (spec") + "s: planners, 2.1)"}).starts_with("line 1: 'spec" + std::string("s:'")));
  CHECK(problems({std::string("// N of sem") + "antics, section 4"}).size() > 0);
  CHECK(problems({"  for (const ChannelSpec& spec : specs)"}).empty());
}

TEST_CASE("every file that a comment or a document names by its path exists") {
  const std::string away = "cost/";
  CHECK(joined(missing_paths({"a/b.h", {"// as cost/price.h and " + away + "nowhere.h say"}})) ==
        "line 1: " + away + "nowhere.h does not exist\n");
  for (const SourceFile& file : project_files()) {
    if (!file.is_cpp() && !file.has_extension(".md")) continue;
    CAPTURE(file.path);
    const std::string problems = joined(missing_paths(file));
    CHECK_MESSAGE(problems.empty(), problems);
  }
}

TEST_CASE("every document and section that a file cites exists") {
  size_t citations = 0;
  for (const SourceFile& file : project_files()) {
    for (const std::string& line : file.lines) citations += line.find("docs/") != std::string::npos;
    CAPTURE(file.path);
    const std::string problems = joined(bad_citations(file));
    CHECK_MESSAGE(problems.empty(), problems);
  }
  CHECK(citations > 50);
}

}  // namespace
}  // namespace graphpipe::tests
