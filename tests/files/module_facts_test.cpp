#include "files/module_facts.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "files/text_file.h"

namespace graphpipe::files {
namespace {

const std::string kDigest(64, 'a');

std::string facts_text(const std::string& rest) {
  return R"({"schema": "graphpipe.module/1", "model": ")" + kDigest + "\"" + rest + "}";
}

TEST_CASE("what a module says becomes lines of a parameter file") {
  const Result<ModuleFacts> facts = parse_module_facts(facts_text(
      R"(, "frozen": ["a.weight", "b.bias"], "padding_rows": [{"parameter": "e.weight", "row": 3}],
          "ties": [{"names": ["e.weight", "head.weight"]}], "modules": [{"node": "node_linear", "path": "a"}],
          "unused": ["n.running_mean"])"));
  REQUIRE(facts.ok());
  CHECK(facts->model_digest == kDigest);
  CHECK(parameter_lines(*facts) ==
        "a.weight freeze\nb.bias freeze\ne.weight padding 3\ne.weight tie\nhead.weight tie e.weight\n"
        "n.running_mean unused\n");
}

TEST_CASE("names that a parameter file cannot hold, and numbers that are no row, are refused by their field") {
  const auto problem = [](const std::string& rest) {
    const Result<ModuleFacts> facts = parse_module_facts(facts_text(rest));
    return facts.ok() ? "" : to_line(facts.problems().front());
  };
  for (const char* name : {"*", "a b", "w?", "a\\n* train", "", "x#"}) {
    CAPTURE(name);
    CHECK(problem(text(R"(, "frozen": [")", name, "\"]")).find("frozen[0]") != std::string::npos);
  }
  CHECK(problem(R"(, "padding_rows": [{"parameter": "e", "row": -1}])").find("padding_rows[0].row") !=
        std::string::npos);
  CHECK(problem(R"(, "ties": [{"names": ["a", "b c"]}])").find("ties[0].names") != std::string::npos);
  CHECK(problem(R"(, "unused": ["a b"])").find("unused[0]") != std::string::npos);
  CHECK(problem(R"(, "unknown": 1)").find("unknown") != std::string::npos);
  CHECK_FALSE(parse_module_facts(R"({"schema": "graphpipe.module/1"})").ok());
  CHECK_FALSE(parse_module_facts(R"({"schema": "graphpipe.module/2", "model": ""})").ok());
}

TEST_CASE("facts are those of the file beside the model, and none are no error") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("graphpipe-module-facts-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string model = folder / "m.onnx";
  CHECK(module_facts_beside(model).value() == std::nullopt);
  REQUIRE(write_file(model + ".module.json", facts_text(R"(, "frozen": ["w"])")).ok());
  CHECK(module_facts_beside(model).value()->frozen.size() == 1);
  REQUIRE(write_file(model + ".module.json", "{").ok());
  CHECK(module_facts_beside(model).problems().front().origin.raw() == model + ".module.json");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace graphpipe::files
