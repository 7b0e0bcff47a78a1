// Every file of tests/passes/text: a graph as text, the pass, and the graph or the refusal that it must give.
//
//   # What the case shows.
//   pass: drop-dead-nodes
//   loss: cross_entropy:logits,label        as --loss; only where the pass needs one
//   precision: bf16                         as --precision
//   forward-only
//   ---- input
//   graphpipe.graph/1
//   ...
//   ---- notes | output | error
//   ...
//
// GRAPHPIPE_UPDATE_TEXT=1 writes what the passes give into the files; the difference is then for a reviewer.

#include "support/text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "ir/graph_text.h"
#include "ir/verify_graph.h"
#include "passes/check_types.h"
#include "passes/losses/registry.h"
#include "passes/pipeline.h"

using namespace graphpipe;

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = GRAPHPIPE_SOURCE_DIR "/tests/passes/text";

struct TextCase {
  /// Everything up to and with the input, as it stands in the file: an update keeps it.
  std::string kept;
  std::string input;
  /// The sections after the input, as they stand in the file.
  std::string results;
  const passes::PassEntry* pass = nullptr;
  passes::PassContext context;
};

ir::LossSpec loss_of(const std::string& flag) {
  const auto loss = passes::parse_loss(flag);
  REQUIRE(loss.ok());
  return *loss;
}

void read_header_line(const std::string& line, TextCase& read) {
  if (line.empty() || line.starts_with('#')) return;
  const size_t colon = line.find(": ");
  const std::string key = line.substr(0, colon), words = colon == std::string::npos ? "" : line.substr(colon + 2);
  CAPTURE(line);
  if (key == "pass") {
    const auto passes = passes::training_pipeline();
    const auto found = std::ranges::find(passes, words, &passes::PassEntry::name);
    REQUIRE(found != passes.end());
    read.pass = &*found;
  } else if (key == "loss") {
    read.context.loss = loss_of(words);
  } else if (key == "precision") {
    const auto precision = ir::precision_of_name(words);
    REQUIRE(precision);
    read.context.precision = *precision;
  } else {
    REQUIRE(key == "forward-only");
    read.context.forward_only = true;
  }
}

TextCase read_case(const fs::path& path) {
  std::ifstream in(path);
  TextCase read;
  std::string section;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("---- ")) section = line.substr(5);
    if (section.empty() || section == "input") read.kept += line + "\n";
    else read.results += line + "\n";
    if (section.empty()) read_header_line(line, read);
    else if (section == "input" && !line.starts_with("---- ")) read.input += line + "\n";
  }
  REQUIRE(read.pass != nullptr);
  REQUIRE_FALSE(read.input.empty());
  return read;
}

/// Sections as they stand in a file: notes where there are any, then the graph or the refusal.
std::string run(const TextCase& read) {
  const auto graph = ir::parse_graph(read.input);
  for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
  REQUIRE(graph.ok());
  const Status verified = ir::verify_graph(*graph, passes::check_types);
  for (const Diagnostic& problem : verified.problems()) MESSAGE(to_line(problem));
  REQUIRE(verified.ok());
  Diagnostics notes;
  passes::PassContext context = read.context;
  context.notes = &notes;
  const auto result = read.pass->run(*graph, context);
  std::string sections;
  if (!notes.empty()) sections += "---- notes\n";
  for (const Diagnostic& note : notes) sections += to_line(note) + "\n";
  sections += result.ok() ? "---- output\n" : "---- error\n";
  for (const Diagnostic& problem : result.problems()) sections += to_line(problem) + "\n";
  if (!result.ok()) return sections;
  const Status still = ir::verify_graph(*result, passes::check_types);
  for (const Diagnostic& problem : still.problems()) MESSAGE(to_line(problem));
  REQUIRE(still.ok());
  return sections + ir::print_graph(*result);
}

/// Empty where there is none.
std::string first_difference(const std::string& got, const std::string& wanted) {
  std::istringstream left(got), right(wanted);
  for (size_t number = 1;; ++number) {
    std::string a, b;
    const bool more_a = static_cast<bool>(std::getline(left, a)), more_b = static_cast<bool>(std::getline(right, b));
    if (!more_a && !more_b) return "";
    if (more_a == more_b && a == b) continue;
    return text("line ", number, " of the results\n  is      ", more_a ? a : "(the end)", "\n  must be ",
                more_b ? b : "(the end)");
  }
}

}  // namespace

TEST_CASE("every file of tests/passes/text: the pass gives the graph, the notes or the refusal that stand there") {
  const char* update = std::getenv("GRAPHPIPE_UPDATE_TEXT");
  std::map<std::string_view, int> files_of_pass;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    CAPTURE(name);
    TextCase read = read_case(path);
    ++files_of_pass[read.pass->name];
    const std::string got = run(read);
    if (update != nullptr && got != read.results) {
      std::ofstream(path) << read.kept << got;
      MESSAGE("updated ", name);
      read.results = got;
    }
    const std::string difference = first_difference(got, read.results);
    CHECK_MESSAGE(difference.empty(), difference);
  }
  for (const passes::PassEntry& pass : passes::training_pipeline()) {
    CAPTURE(pass.name);
    CHECK(files_of_pass[pass.name] >= 2);
  }
}
