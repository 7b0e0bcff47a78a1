// Words that a reader of the field stumbles over, each with the field's own word (docs/glossary.md). They are gone and
// shall not return.

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <string>
#include <vector>

#include "support/text.h"
#include "tests/house/source_tree.h"

namespace graphpipe::tests {
namespace {

struct StrangeWord {
  std::string stem;     // in small letters: lines without it need no search for the pattern
  std::string pattern;  // of a regular expression, without regard to case
  std::string say;
};

/// What stands before a variable's name: a word that may also be English is looked for in declarations alone.
const std::string kDeclared = R"(\b(const \w+|int|u?int\d+_t|double|float|size_t|auto|Samples|Bytes|Ticks)[&*]* )";

const std::vector<StrangeWord>& strange_words() {
  static const std::vector<StrangeWord> words = {
      {"circle", R"((in a|of a|no) circle\b)", "cycle, or deadlock"},
      {"of stages", R"(\brows? of stages\b)", "chain, or linear pipeline"},
      {"way through", R"(\b(shortest|longest) way through\b)", "critical path, or pipeline latency"},
      {"most", kDeclared + R"(most_?\b|\bkMost|\bmost_[a-z]|\bmost_\b)", "kMax, max_, or the largest"},
      {"least", kDeclared + R"(least_?\b|\bkLeast|\bleast_[a-z])", "kMin, min_, or the smallest"},
      {"bay", R"(\bbays?\b)", "staging buffers, or slots"},
      {"parcel", R"(\bparcel(s|ed)?\b)", "pending message"},
      {"judg", R"(\bjudg(e|es|ed|ing|ement)\b|\bjudges?_|_judges?\b|\bjudged_)", "check, or validate"},
      {"stud", R"(\bstud(y|ies|ied|ying)\b)", "standalone schedule, plan or simulate"},
      {"hand", R"(\b(the|a|one) hand of\b|\bhand_of\b|struct Hand\b)", "device mix"},
      {"every so many", R"(every so many)", "every k-th, or a period"},
      {"hill", R"(\bworse hill\b|\bhill of\b)", "local optimum"},
      {"with us", R"(\bwrong with us\b)", "defect of ours"},
  };
  return words;
}

/// Without what papers call something.
std::string without_others_words(const std::string& line) {
  static const std::regex others("case[ -]study", std::regex::icase);
  return std::regex_replace(line, others, "");
}

/// The words of the line that have a better one, each as it stands there.
std::vector<std::string> found_in(const std::string& line) {
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> all;
    for (const StrangeWord& word : strange_words())
      all.emplace_back(word.pattern, std::regex::icase | std::regex::optimize);
    return all;
  }();
  std::string small = line;
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> found;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const StrangeWord& word = strange_words()[i];
    if (small.find(word.stem) == std::string::npos) continue;
    const std::string ours = without_others_words(line);
    if (std::smatch match; std::regex_search(ours, match, patterns[i]))
      found.push_back(text("'", match.str(), "': say ", word.say));
  }
  return found;
}

bool may_have_them(const SourceFile& file) {
  return file.path != "tests/house/words_test.cpp" && file.path != "CHANGELOG.md" && !file.has_extension(".json");
}

}  // namespace

TEST_CASE("no file uses a word that the glossary has replaced") {
  for (const SourceFile& file : project_files()) {
    if (!may_have_them(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      for (const std::string& word : found_in(file.lines[i])) FAIL_CHECK(text(file.path, ":", i + 1, ": ", word));
  }
}

TEST_CASE("replaced words are found with their inflections, and within names") {
  for (const std::string line :
       {"tasks that wait in a circle", "rows of stages", "constexpr int kMostParts = 3;", "int64_t least_work();",
        "judges_step()", "was judged by", "it studies one", "two bays"})
    CHECK_MESSAGE(found_in(line).size() == 1, line);
  for (const std::string line : {"the paper's case study", "innermost_first", "at least one", "<circle cx=\"1\"/>",
                                 "written by hand", "student", "abaya"})
    CHECK_MESSAGE(found_in(line).empty(), line);
}

TEST_CASE("words that are English too are found where they name a variable") {
  for (const std::string line : {"const double most = 2;", "size_t least_;", "auto& most = at(0);", "f(int64_t most);",
                                 "const Bytes least(7);", "const Allowed& most"})
    CHECK_MESSAGE(found_in(line).size() == 1, line);
  for (const std::string line :
       {"At most, least of all", "an int at least", "int64_t at most", "double the most bytes", "the most double"})
    CHECK_MESSAGE(found_in(line).empty(), line);
}

}  // namespace graphpipe::tests
