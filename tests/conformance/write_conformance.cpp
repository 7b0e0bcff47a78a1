// What becomes of ONNX's own node tests, each NAME/model.onnx in the folder CASES. Where that is refused
// NAME/fixed.onnx is tried, which has constants for all inputs but the first; then both with --one-sample, and so
// NAME/constant.onnx, which has constants for all:
//   write_conformance survey CASES PAGE         prints a line for each: "NAME accepted FILE", or "NAME refused" and the
//                                               problem of the last try; PAGE becomes docs/operators.md
//   write_conformance sources CASES OUT PARTS   the same lines, and writes the accepted ones as C++ files
//                                               cases_<part>.cpp and cases.cpp, with their constants in
//                                               NAME.safetensors, for run_conformance

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "codegen/function_writer.h"
#include "driver/pipeline/parameter_bytes.h"
#include "frontend/import_onnx.h"
#include "ops/op_def.h"
#include "passes/pipeline.h"
#include "support/check.h"
#include "tests/conformance/operator_table.h"
#include "tests/support/written_cases.h"

namespace graphpipe::conformance {
namespace {

namespace fs = std::filesystem;

struct Model {
  std::string name, file;
  ir::Graph graph;
  int64_t samples = 1;
  bool one_sample = false;
};

std::string how_accepted(const Model& model) {
  return text(fs::path(model.file).stem().string(), model.one_sample ? ", one sample" : "");
}

// Forwards only, and as the file says: BatchNormalization and Dropout in its own mode.
Result<Model> read_model(const fs::path& folder, const std::string& file, bool one_sample) {
  frontend::ImportRequest request;
  request.spec.path = ModelText((folder / file).string());
  request.spec.batch_norm = ir::BatchNormMode::kFile;
  request.spec.dropout = true;
  request.spec.one_sample = one_sample;
  request.isolation = frontend::Isolation::kSharedProcess;
  GP_TRY(frontend::Imported imported, frontend::import_onnx(request));
  Model model{.name = folder.filename().string(),
              .file = (folder / file).string(),
              .graph = {},
              .samples = std::max<int64_t>(1, imported.traced_batch),
              .one_sample = one_sample};
  GP_TRY(model.graph, passes::run_pipeline(std::move(imported.graph), {.forward_only = true}));
  return model;
}

Result<Model> read_model(const fs::path& folder) {
  struct Try {
    const char* file;
    bool one_sample;
  };
  constexpr Try kTries[] = {{"model.onnx", false},
                            {"fixed.onnx", false},
                            {"model.onnx", true},
                            {"fixed.onnx", true},
                            {"constant.onnx", true}};
  Result<Model> model = Diagnostic{};
  for (const Try& each : kTries) {
    if (!fs::exists(folder / each.file)) continue;
    if (model = read_model(folder, each.file, each.one_sample); model.ok()) return model;
  }
  return model;
}

bool is_random(const ir::Graph& graph) {
  for (const ir::NodeId node : graph.node_ids()) {
    const ops::OpDef* entry = ops::find_op(graph.node(node).op);
    if (entry != nullptr && entry->is_random) return true;
  }
  return false;
}

std::map<ir::ValueId, size_t> weight_values(const ir::Graph& graph) {
  std::map<ir::ValueId, size_t> values;
  for (const ir::ParamId param : graph.param_ids()) values[graph.param(param).value] = param.index();
  return values;
}

template <typename Rows>
std::string slot_rows(const ir::Graph& graph, const Rows& rows) {
  std::string out;
  const std::map<ir::ValueId, size_t> weights = weight_values(graph);
  const auto weight_of = [&](ir::ValueId value) {
    const auto found = weights.find(value);
    return found == weights.end() ? -1 : static_cast<int>(found->second);
  };
  for (const auto& row : rows)
    out += text("{", CppLiteral::encode(row.name).str(), ", ElementType{",
                static_cast<int>(graph.value(row.value).type.dtype), "}, ", weight_of(row.value), "}, ");
  return out;
}

// An array of its own, since a case has a span of it; none where it would be empty.
std::string array_text(std::string_view type, const std::string& name, const std::string& rows) {
  return rows.empty() ? text("const std::span<const ", type, "> ", name, ";\n")
                      : text("const ", type, " ", name, "[] = {", rows, "};\n");
}

struct Part {
  std::set<std::string> headers;
  std::string functions, table;
};

void add_model(const Model& model, size_t number, Part& part) {
  const codegen::FunctionText function = codegen::write_whole_function(model.graph);
  part.headers.insert(function.headers.begin(), function.headers.end());
  std::string weights;
  for (const ir::ParamId param : model.graph.param_ids())
    weights += CppLiteral::encode(model.graph.param(param).name).str() + ", ";
  part.functions +=
      function.definition(text("run_", number)) + "\n" + array_text("char* const", text("weights_", number), weights) +
      array_text("SlotRow", text("inputs_", number), slot_rows(model.graph, model.graph.inputs())) +
      array_text("SlotRow", text("outputs_", number), slot_rows(model.graph, model.graph.outputs())) + "\n";
  part.table += text("    {\"", model.name, "\", run_", number, ", ", model.samples, ", ",
                     is_random(model.graph) ? "true, " : "false, ", model.one_sample ? "true" : "false", ", weights_",
                     number, ", inputs_", number, ", outputs_", number, "},\n");
}

std::string part_text(const Part& part, size_t number) {
  return text("// Written by write_conformance.\n#include <limits>\n", codegen::include_lines(part.headers),
              "\n#include \"tests/conformance/case_table.h\"\n\nnamespace {\n\nusing "
              "graphpipe::conformance::SlotRow;\nusing graphpipe::runtime::ElementType;\n\n",
              part.functions, "const graphpipe::conformance::Case kCases[] = {\n    {},\n", part.table,
              "};\n\n}  // namespace\n\nstd::span<const graphpipe::conformance::Case> part_", number,
              "() { return std::span(kCases).subspan(1); }\n");
}

std::vector<fs::path> case_folders(const fs::path& cases) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(cases))
    if (fs::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

// A refusal without the names that it quotes and without its hint, so that equal reasons count together. Of an operator
// that is refused as such the table has the name already; its hint says why.
std::string plain_reason(const Diagnostic& problem) {
  if (problem.code == Code::kUnsupportedOp && problem.message.starts_with("the operator '")) return problem.hint;
  std::string words;
  bool quoted = false;
  for (const char c : problem.message.substr(0, problem.message.find("; "))) {
    if (c == '\'') quoted = !quoted;
    if (!quoted || c == '\'') words += c;
  }
  return words;
}

template <typename Take>
void survey(const fs::path& cases, Take take) {
  for (const fs::path& folder : case_folders(cases)) {
    const Result<Model> model = read_model(folder);
    std::cout << folder.filename().string();
    if (!model.ok()) std::cout << " refused " << to_line(model.problems().front()) << "\n";
    else std::cout << " accepted " << how_accepted(*model) << "\n";
    take(folder, model);
  }
}

int write_page(const fs::path& cases, const fs::path& page) {
  std::map<std::string, OperatorTests> tests;
  survey(cases, [&](const fs::path& folder, const Result<Model>& model) {
    const std::string name = tested_operator(folder / "model.onnx");
    if (name.empty()) return;
    OperatorTests& own = tests[name];
    own.all += 1;
    own.accepted += model.ok() ? 1 : 0;
    if (!model.ok()) own.reasons[plain_reason(model.problems().front())] += 1;
  });
  std::ofstream(page) << operator_page(tests);
  return 0;
}

int write_sources(const fs::path& cases, const fs::path& out, std::vector<Part> parts) {
  fs::create_directories(out);
  size_t accepted = 0;
  survey(cases, [&](const fs::path&, const Result<Model>& model) {
    if (!model.ok()) return;
    const driver::WeightOrigin origin{.model = model->file, .trusted_root = ""};
    GP_CHECK(driver::write_weights((out / (model->name + ".safetensors")).string(), model->graph, origin).ok());
    add_model(*model, accepted, parts[accepted % parts.size()]);
    ++accepted;
  });
  for (size_t i = 0; i < parts.size(); ++i)
    tests::write_if_changed(out / text("cases_", i, ".cpp"), part_text(parts[i], i));
  tests::write_if_changed(out / "cases.cpp", tests::case_list_text("tests/conformance/case_table.h",
                                                                   "graphpipe::conformance", parts.size()));
  return 0;
}

}  // namespace
}  // namespace graphpipe::conformance

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "survey") return graphpipe::conformance::write_page(words[1], words[2]);
  const size_t parts = words.size() == 4 ? std::strtoul(words[3].c_str(), nullptr, 10) : 0;
  if (parts > 0 && words[0] == "sources")
    return graphpipe::conformance::write_sources(words[1], words[2], std::vector<graphpipe::conformance::Part>(parts));
  std::cerr << "usage: write_conformance survey CASES PAGE | write_conformance sources CASES OUT PARTS\n";
  return 2;
}
